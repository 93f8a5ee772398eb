"""Timings and memory, measured beside a peer in the same run. `python -m benchmarks` runs all; none is a test."""
