"""Processes: they end with their call and with their driver."""
