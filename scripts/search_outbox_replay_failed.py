#!/usr/bin/env python3
"""The guide's name for `outbox-replay`: --by NAME --reason WHY --limit N [--dry-run]."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

if __name__ == "__main__":
    from outbox.cli.replay import main

    main()
