"""Benchmarks: every figure is a ratio taken in one run, alternating and warm. Nothing in outbox/ knows them."""
