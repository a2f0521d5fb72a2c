#!/usr/bin/env python3
"""The guide's name for `outbox run`: the projector, with its settings from the environment."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

if __name__ == "__main__":
    from outbox.cli import main

    sys.argv[1:1] = ["run"]
    main()
