"""Settings: where they are read from, which values are allowed, and where each value came from.

The rooms that use a setting decide what it does. They receive values, never a Config.
"""
