"""Test support for users: scripted models, a clock that jumps, faults on demand, conformance suites.

The library does not import it, and it imports no test framework.
"""
