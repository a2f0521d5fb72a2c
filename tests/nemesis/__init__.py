"""Owns the nemesis: real workers and servers under load and faults, then a verdict. Nothing in `outbox/` knows it."""
