"""On a daemon's PYTHONPATH this shifts Python's wall clock by LABS_CLOCK_SHIFT seconds."""

import datetime
import os
import time

SHIFT = float(os.environ.get("LABS_CLOCK_SHIFT", "0"))
_time, _time_ns = time.time, time.time_ns


class Shifted(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
        return datetime.datetime.fromtimestamp(_time() + SHIFT, tz)


if SHIFT:
    time.time = lambda: _time() + SHIFT
    time.time_ns = lambda: _time_ns() + int(SHIFT * 1e9)
    datetime.datetime = Shifted  # type: ignore[misc]
