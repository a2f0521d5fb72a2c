#!/usr/bin/env python3
"""The guide's name for `outbox-replay`: --by NAME --reason WHY --limit N [--dry-run]."""

from inside import start

if __name__ == "__main__":
    start("outbox.cli.replay")
