"""What the library's `Agent` is made of: its runtime, its limits, what it is given, and what it tells."""
