"""Owns how a daemon is started with a wrong clock: libfaketime, loaded before everything else. Waits stay right."""

from __future__ import annotations

from pathlib import Path

from labs.errors import NotHere

PLACES = ("/usr/lib", "/usr/local/lib", "/usr/lib64")


def library() -> Path:
    for place in PLACES:
        for found in sorted(Path(place).glob("**/faketime/libfaketimeMT.so.1")):
            return found
    raise NotHere("it needs libfaketime (Debian: apt-get install faketime)")


def skewed(seconds: int) -> dict[str, str]:
    """Variables for a process whose wall clock is off by so much; its monotonic clock is not touched."""
    return {
        "LD_PRELOAD": str(library()),
        "FAKETIME": f"{seconds:+d}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
