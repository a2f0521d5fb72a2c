"""Benchmarks: every figure is a ratio measured in one run, alternating and warm. Nothing in outbox/ imports them."""
