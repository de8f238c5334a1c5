"""Policy: judges whether a call may happen, from resolved facts alone. It opens, runs and asks nothing."""
