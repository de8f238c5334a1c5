"""The spine: what a cause means (`decide`), the fold (`evolve`), what should be in flight (`wanted`).

Pure: no input or output, no clock, no randomness. Read `state`, `evolve`, `decide`, `wanted`, in that order.
"""
