#!/usr/bin/env python3
"""The guide's name for `outbox run`: the projector, with its settings from the environment."""

import sys

from inside import start


def load():
    from outbox.cli import main

    sys.argv[1:1] = ["run"]
    return main


if __name__ == "__main__":
    start(load)
