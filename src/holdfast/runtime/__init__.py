"""The engine room: takes a session's lease, drives it as the core decides, turns actions into effects."""
