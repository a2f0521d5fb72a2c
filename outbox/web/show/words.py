"""Turns numbers, ages and times into words for people. Times are UTC; the caller says what time it is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_UNITS: Final = ((90, 1, "s"), (5400, 60, "min"), (129_600, 3600, "h"), (3_888_000, 86_400, "d"))


def age(seconds: float | None) -> str:
    """0.4 s, 48 s, 6 min, 3 h, 12 d, 4 months: one unit, as people say it."""
    if seconds is None:
        return "-"
    seconds = max(seconds, 0.0)
    for limit, unit, name in _UNITS:
        if seconds < limit:
            value = seconds / unit
            return f"{value:.1f} {name}" if value < 10 and unit == 1 and value % 1 else f"{value:.0f} {name}"
    months = seconds / 2_629_800
    return f"{months:.0f} months" if months < 24 else f"{months / 12:.0f} years"


def ago(when: datetime | None, now: datetime) -> str:
    """Relative to now, both ways."""
    if when is None:
        return ""
    seconds = (now - when).total_seconds()
    if abs(seconds) < 2:
        return "just now"
    rounded = age(round(abs(seconds)))
    return f"{rounded} ago" if seconds > 0 else f"in {rounded}"


def iso(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock(when: datetime) -> str:
    """A time as it is read: 2026-02-03 10:00:00."""
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def short_clock(when: datetime, now: datetime) -> str:
    """As short as it can be told: the time of today, else the day as well."""
    at, today = when.astimezone(UTC), now.astimezone(UTC)
    return at.strftime("%H:%M:%S") if at.date() == today.date() else at.strftime("%d %b %H:%M")


def count(number: float | None, *, capped: bool = False) -> str:
    """12,345 and, where counting stopped, 10,000+."""
    if number is None:
        return "-"
    return f"{number:,.0f}{'+' if capped else ''}"


def rate(per_second: float | None) -> str:
    """Events a second, or a minute where that reads better."""
    if not per_second:
        return "0 /s"
    if per_second < 1:
        return f"{per_second * 60:.1f} /min" if per_second * 60 < 10 else f"{per_second * 60:.0f} /min"
    return f"{per_second:.1f} /s" if per_second < 10 else f"{per_second:,.0f} /s"


def size(bytes_: int | None) -> str:
    if bytes_ is None:
        return "-"
    value = float(bytes_)
    for unit in ("B", "KB", "MB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GB"


def plural(number: float, one: str, many: str = "") -> str:
    return f"{number:,.0f} {one if number == 1 else many or one + 's'}"


def visible(text: object) -> str:
    """Control characters made visible, so that a value cannot play tricks with the reader; line breaks stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in str(text))
