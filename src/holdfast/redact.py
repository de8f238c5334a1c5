"""Masks secrets in whatever is stored, logged or shown."""
