"""Benchmarks: each prints ratios against a named peer, measured in the same run."""
