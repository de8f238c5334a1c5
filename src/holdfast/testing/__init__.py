"""The workshop, shipped for users: scripted models, a clock that jumps, faults on demand, conformance suites.

Nothing here is imported by the library itself, and nothing here imports a test framework.
"""
