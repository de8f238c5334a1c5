"""The core: which events follow from a cause (`decide`), the fold (`evolve`), what should be in flight (`wanted`).

Pure: no input or output, no clock, no randomness. Read `state`, `evolve`, `decide`, `wanted`, in that order.
"""
