#!/usr/bin/env python3
"""The guide's name for `outbox run`: the projector, with its settings from the environment."""

from inside import start

if __name__ == "__main__":
    start("outbox.cli", "run")
