#!/usr/bin/env python3
"""The guide's name for `python -m labs.loadgen`: LOADGEN_SCENARIO, TOTAL_OPS and more; see `--help`."""

from inside import start

if __name__ == "__main__":
    start("labs.loadgen")
