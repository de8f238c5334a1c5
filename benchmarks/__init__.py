"""Measurements beside a floor, in one run, as ratios: `python -m benchmarks`. No test depends on them."""
