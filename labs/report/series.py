"""Reads the curves of a run from its timeline: backlog, age, rates, pauses, daemons. It draws nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from labs.record import Record


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A time span on a row; `style` says how it is drawn."""

    began: float
    ended: float
    style: str


@dataclass(frozen=True, slots=True)
class ChartRow:
    name: str
    bars: list[TimeSpan]
    kind: str


@dataclass(slots=True)
class ChartSeries:
    t: list[float] = field(default_factory=list)
    pending: list[float] = field(default_factory=list)
    processing: list[float] = field(default_factory=list)
    oldest: list[float] = field(default_factory=list)
    failed: list[float] = field(default_factory=list)
    done_rate: list[float] = field(default_factory=list)
    retry_rate: list[float] = field(default_factory=list)
    rows: list[ChartRow] = field(default_factory=list)


def series(record: Record) -> ChartSeries:
    """Only samples that PostgreSQL answered are points; gaps stay gaps."""
    lines = [line for line in record.timeline if "status" in line]
    found = ChartSeries()
    for before, line in zip([lines[0], *lines] if lines else [], lines, strict=False):
        status = line["status"]
        seconds = max(line["t"] - before["t"], 0.2)
        found.t.append(line["t"])
        found.pending.append(status.get("pending", 0))
        found.processing.append(status.get("processing", 0))
        found.oldest.append(line["oldest"])
        found.failed.append(status.get("failed", 0))
        found.done_rate.append(max(0, status.get("done", 0) - before["status"].get("done", 0)) / seconds)
        found.retry_rate.append(_growth(before, line, "outbox_retry_scheduled_total") / seconds)
    found.rows = [*_daemons(record), *_pauses(record), *_alerts(record)]
    return found


def _growth(before: dict[str, Any], line: dict[str, Any], metric: str) -> float:
    """Of a counter, over the daemons that are in both samples."""
    grown = 0.0
    for name in line["workers"]:
        was, now = _page(before, name).get(metric), _page(line, name).get(metric)
        if was is not None and now is not None:
            grown += max(0.0, now - was)
    return grown


def _page(line: dict[str, Any], name: str) -> dict[str, float]:
    worker = line["workers"].get(name) or {}
    return dict(worker.get("m") or {})


def _daemons(record: Record) -> list[ChartRow]:
    names = list(dict.fromkeys(name for line in record.timeline for name in line["workers"]))
    return [ChartRow(name, _stretches(record, partial(_life, name)), "daemon") for name in names]


def _life(name: str, line: dict[str, Any]) -> str:
    worker = line["workers"].get(name) or {}
    if not worker.get("up"):
        return ""
    if worker.get("frozen"):
        return "frozen"
    return {"ready": "ready", "degraded": "degraded"}.get(worker.get("state", ""), "unready")


def _pauses(record: Record) -> list[ChartRow]:
    pages = [_page(line, name) for line in record.timeline for name in line["workers"]]
    gauges = sorted({metric for page in pages for metric in page if metric.startswith("outbox_paused{")})
    rows = [
        ChartRow(_pause_name(metric), _stretches(record, partial(_is_on, metric)), "pause")
        for metric in (*gauges, "outbox_braked_fingerprints")
    ]
    return [row for row in rows if row.bars]


def _is_on(metric: str, line: dict[str, Any]) -> str:
    return "on" if any(_page(line, name).get(metric) for name in line["workers"]) else ""


def _pause_name(metric: str) -> str:
    return "brake" if "braked" in metric else f"paused: {metric.split('cause=')[1].rstrip('}')}"


def _alerts(record: Record) -> list[ChartRow]:
    spans = record.about["alerts"]["spans"].items()
    rows = [
        ChartRow(name, [TimeSpan(a, max(b, a + 0.3), state) for a, b, state in found], "alert") for name, found in spans
    ]
    rang = [row for row in rows if any(bar.style == "firing" for bar in row.bars)]
    return sorted(rang, key=lambda row: row.bars[0].began)


def _stretches(record: Record, style: Callable[[dict[str, Any]], str]) -> list[TimeSpan]:
    """Adjacent samples of one style are one bar."""
    bars: list[TimeSpan] = []
    lines = record.timeline
    for place, line in enumerate(lines):
        now = style(line)
        ended = lines[place + 1]["t"] if place + 1 < len(lines) else line["t"] + 0.5
        if now and bars and bars[-1].style == now and abs(bars[-1].ended - line["t"]) < 0.01:
            bars[-1] = TimeSpan(bars[-1].began, ended, now)
        elif now:
            bars.append(TimeSpan(line["t"], ended, now))
    return bars
