"""A wrong clock for a daemon: by libfaketime if installed, else by shifting Python's clock. Waits stay correct."""

from __future__ import annotations

from pathlib import Path

PLACES = ("/usr/lib", "/usr/local/lib", "/usr/lib64")
SHIM = Path(__file__).with_name("shifted_clock")


def library() -> Path | None:
    found = (path for place in PLACES for path in Path(place).glob("**/faketime/libfaketimeMT.so.1"))
    return next(found, None)


def skewed(seconds: int, pythonpath: str) -> dict[str, str]:
    """Environment variables that shift a process's wall clock. Its monotonic clock is not changed."""
    preload = library()
    if preload is None:
        return {"PYTHONPATH": f"{SHIM}:{pythonpath}", "LABS_CLOCK_SHIFT": str(seconds)}
    return {
        "LD_PRELOAD": str(preload),
        "FAKETIME": f"{seconds:+d}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


def how() -> str:
    return "libfaketime" if library() else "a shift of Python's own clock (libfaketime is not installed)"
