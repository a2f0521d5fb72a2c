"""Draws the timeline of a run as one SVG that works without scripts, in light and dark mode and in print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from labs.record import Record
from labs.report.series import ChartRow, ChartSeries, series

WIDTH, LEFT, RIGHT, TOP = 1080, 186, 18, 52
PANEL, GAP, ROW = 104, 30, 20
PLOT = WIDTH - LEFT - RIGHT


@dataclass
class Chart:
    """`y` moves down as panels are drawn; `x` turns seconds into pixels."""

    record: Record
    end: float
    y: float = TOP

    def __post_init__(self) -> None:
        self.parts: list[str] = []

    def x(self, seconds: float) -> float:
        return round(LEFT + PLOT * min(max(seconds / self.end, 0.0), 1.0), 1)

    def add(self, text: str) -> None:
        self.parts.append(text)


def chart(record: Record) -> str:
    """An empty string for a run without any sample."""
    found = series(record)
    if len(found.t) < 3:
        return ""
    drawing = Chart(record, max(found.t[-1], 1.0))
    stacked = [a + b for a, b in zip(found.pending, found.processing, strict=True)]
    _panel(drawing, found, "Open events", "", [("open", stacked, True), ("processing", found.processing, True)])
    _panel(drawing, found, "Oldest open event", " s", [("oldest", found.oldest, True)])
    _panel(drawing, found, "Each second", "", [("done", found.done_rate, False), ("retried", found.retry_rate, False)])
    if max(found.failed):
        _panel(drawing, found, "Failed rows", "", [("failed", found.failed, True)])
    _rows(drawing, found.rows)
    bottom = drawing.y
    frame = _phases(drawing, bottom) + _markers(drawing, bottom) + _axis(drawing, bottom)
    label = (
        f"Timeline of {record.name}: open events, age, rates, daemons, pauses and alerts over {drawing.end:.0f} seconds"
    )
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {bottom + 26:.0f}" role="img" aria-label="{escape(label)}">'
        f'<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<line class="hatch" y2="6"/></pattern></defs>{"".join(frame)}{"".join(drawing.parts)}</svg>'
    )


def nice(value: float) -> float:
    """The next round number, as the end of an axis."""
    if value <= 1:
        return 1.0
    power = 10 ** math.floor(math.log10(value))
    return float(next(step * power for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * power >= value))


Curve = tuple[str, list[float], bool]  # its name, its values, whether it is filled


def _panel(drawing: Chart, found: ChartSeries, title: str, unit: str, curves: Sequence[Curve]) -> None:
    top, bottom = drawing.y, drawing.y + PANEL
    most = nice(max(max(values) for _, values, _ in curves))
    drawing.add(f'<text class="panel" x="{LEFT - 14}" y="{top + 12}" text-anchor="end">{escape(title)}</text>')
    for place, (name, values, _) in enumerate(curves):
        _key(drawing, name, f"{name} · peak {max(values):,.{1 if unit else 0}f}{unit}", top + 32 + 16 * place)
    for share in (0.0, 0.5, 1.0):
        y = bottom - PANEL * share
        drawing.add(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        if share:
            drawing.add(f'<text class="tick" x="{LEFT + 4}" y="{y + 11}">{most * share:,.4g}{unit}</text>')
    for name, values, filled in curves:
        points = [(drawing.x(t), round(bottom - PANEL * v / most, 1)) for t, v in zip(found.t, values, strict=True)]
        line = " ".join(f"{x},{y}" for x, y in points)
        if filled:
            around = f"{points[0][0]},{bottom} {line} {points[-1][0]},{bottom}"
            drawing.add(f'<polygon class="area {name}" points="{around}"/>')
        drawing.add(f'<polyline class="curve {name}" points="{line}"/>')
    drawing.y = bottom + GAP


def _key(drawing: Chart, name: str, text: str, y: float) -> None:
    drawing.add(f'<text class="key" x="{LEFT - 14}" y="{y}" text-anchor="end">{escape(text)}</text>')
    drawing.add(f'<rect class="dot {name}" x="{LEFT - 9}" y="{y - 8}" width="4" height="9" rx="1.5"/>')


def _rows(drawing: Chart, rows: Sequence[ChartRow]) -> None:
    for row in rows:
        y = drawing.y
        drawing.add(f'<text class="row" x="{LEFT - 14}" y="{y + 11}" text-anchor="end">{escape(row.name)}</text>')
        drawing.add(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y + 7}" y2="{y + 7}"/>')
        for bar in row.bars:
            x, ends = drawing.x(bar.began), drawing.x(bar.ended)
            text = f"{row.name}: {bar.style}, {bar.began:.1f} to {bar.ended:.1f} s"
            box = f'x="{x}" y="{y + 1}" width="{max(ends - x, 2):.1f}" height="12" rx="3"'
            drawing.add(f'<rect class="bar {row.kind} {bar.style}" {box}><title>{escape(text)}</title></rect>')
            if bar.style == "frozen":
                drawing.add(f'<rect fill="url(#hatch)" {box}/>')
        drawing.y += ROW
    drawing.y += 6


def _phases(drawing: Chart, bottom: float) -> list[str]:
    parts = []
    for phase in drawing.record.about["phases"]:
        began, ended = drawing.x(phase["began"]), drawing.x(phase["ended"] or drawing.end)
        if phase["name"] == "fault":
            size = f'width="{ended - began:.1f}" height="{bottom - TOP + 30}"'
            parts.append(f'<rect class="window" x="{began}" y="{TOP - 30}" {size}/>')
        if ended - began > 34:
            parts.append(f'<text class="phase" x="{(began + ended) / 2:.0f}" y="{TOP - 38}">{phase["name"]}</text>')
        parts.append(f'<line class="edge" x1="{began}" x2="{began}" y1="{TOP - 46}" y2="{bottom}"/>')
    return parts


def _markers(drawing: Chart, bottom: float) -> list[str]:
    """Numbered, so that labels never overlap; the list is below the chart."""
    parts, last = [], -99.0
    for number, marker in enumerate(drawing.record.about["markers"], 1):
        x = drawing.x(marker["t"])
        place = max(x, last + 17)
        last = place
        parts.append(
            f'<g class="marker {marker["kind"]}"><line x1="{x}" x2="{x}" y1="{TOP - 10}" y2="{bottom}"/>'
            f'<circle cx="{place}" cy="{TOP - 18}" r="8"/><text x="{place}" y="{TOP - 14.5}">{number}</text>'
            f"<title>{escape(marker['text'])}</title></g>"
        )
    return parts


def _axis(drawing: Chart, bottom: float) -> list[str]:
    step = nice(drawing.end / 8)
    ticks = [step * n for n in range(int(drawing.end / step) + 1)]
    return [
        f'<text class="tick" x="{drawing.x(t)}" y="{bottom + 16}" text-anchor="middle">{t:g} s</text>' for t in ticks
    ]
