"""The clock of leases: seconds that also pass while the machine is suspended. Given to whoever needs it, never patched.

Leases are judged by the database's clock, which goes on while this machine sleeps; `time.monotonic` does not.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

# Linux counts suspended time in CLOCK_BOOTTIME. macOS has no such name; its CLOCK_MONOTONIC_RAW goes on in sleep.
# Elsewhere a suspended machine overestimates its lease: the token still fences what it settles.
PREFERRED: Final = ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC_RAW", "CLOCK_MONOTONIC")


def best_clock(known: Mapping[str, Any]) -> int:
    return next(int(known[name]) for name in PREFERRED if name in known)


_CLOCK: Final = best_clock(vars(time))


def boottime() -> float:
    return time.clock_gettime(_CLOCK)
