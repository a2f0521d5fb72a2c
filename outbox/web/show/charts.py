"""Draws small charts as SVG geometry: numbers in, coordinates out. Colours are classes, so both themes fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


class Bar(NamedTuple):
    x: float
    y: float
    width: float
    height: float
    series: str
    label: str


class Tick(NamedTuple):
    at: float
    label: str


class Columns(NamedTuple):
    """A stacked column chart; `top` is the value of its upper edge."""

    width: int
    height: int
    bars: list[Bar]
    across: list[Tick]
    up: list[Tick]
    top: int
    total: int


def spark(values: Sequence[float], width: int = 96, height: int = 22) -> str:
    """The points of a polyline; a flat line at the bottom where nothing happened."""
    if not values:
        return ""
    most = max(*values, 1)
    step = width / max(len(values) - 1, 1)
    return " ".join(f"{i * step:.1f},{height - 1 - v / most * (height - 3):.1f}" for i, v in enumerate(values))


def stacked(
    buckets: Sequence[tuple[str, Mapping[str, int]]],
    series: Sequence[str],
    width: int = 720,
    height: int = 140,
    label: Callable[[str], str] = str,
) -> Columns:
    """One column a bucket, the series from the bottom up; labels hold the numbers for those who cannot see it."""
    most = max((sum(counts.values()) for _, counts in buckets), default=0)
    top = nice(most)
    step = width / max(len(buckets), 1)
    bars: list[Bar] = []
    for place, (bucket, counts) in enumerate(buckets):
        below = 0.0
        for name in series:
            if n := counts.get(name, 0):
                tall = max(n / top * height, 1.5)
                bars.append(
                    Bar(
                        place * step + 1, height - below - tall, max(step - 2, 1), tall, name, f"{bucket}: {n:,} {name}"
                    )
                )
                below += tall
    every = max(math.ceil(len(buckets) / 8), 1)
    across = [Tick(i * step + step / 2, label(bucket)) for i, (bucket, _) in enumerate(buckets) if i % every == 0]
    up = [Tick(height - share * height, f"{top * share:,.0f}") for share in (0.5, 1.0)] if most else []
    return Columns(width, height, bars, across, up, top, sum(sum(counts.values()) for _, counts in buckets))


def nice(most: float) -> int:
    """The next round number that is not below."""
    if most <= 4:
        return 4
    power = 10 ** math.floor(math.log10(most))
    return int(next(step * power for step in (1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10) if step * power >= most))
