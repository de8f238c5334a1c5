"""The runtime: takes a session's lease, drives it as the core decides, and turns actions into effects."""
