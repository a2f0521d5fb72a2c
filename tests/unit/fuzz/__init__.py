"""Fuzzers: each is a hypothesis test that `scripts/fuzz` drives by coverage too (docs/fuzzing.md)."""
