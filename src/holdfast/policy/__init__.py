"""Policy: judges whether a call may happen, from resolved facts alone. It does not open, run or ask anything."""
