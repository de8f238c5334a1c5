"""Capabilities: what a model may call, and the gates before it."""
