"""Benchmarks against g2opy and gtsam. `python -m benchmarks` runs them all in one process on one machine."""
