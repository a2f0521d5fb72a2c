#!/usr/bin/env python3
"""The guide's name for `python -m labs.loadgen`: LOADGEN_SCENARIO, TOTAL_OPS and so on; `--help` lists them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

if __name__ == "__main__":
    from labs.loadgen import main

    sys.exit(main())
