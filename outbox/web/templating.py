"""The templates: everything is escaped, an unknown name is an error; numbers, ages, times and small charts read alike.

Times are UTC; the caller says what time it is.
"""

from __future__ import annotations

import getpass
import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from outbox import __version__
from outbox.ops.status import age, size
from outbox.policy.outcome import Code
from outbox.telemetry.redaction import escape_for_json


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
    """As short as possible: the time of today, else the day as well."""
    at, today = when.astimezone(UTC), now.astimezone(UTC)
    return at.strftime("%H:%M:%S") if at.date() == today.date() else at.strftime("%d %b %H:%M")


def count(number: float | None, *, capped: bool = False) -> str:
    """12,345 and, where counting stopped, 10,000+."""
    if number is None:
        return "-"
    return f"{number:,.0f}{'+' if capped else ''}"


def rate(per_second: float | None) -> str:
    """Events per second, or per minute where that reads better."""
    if not per_second:
        return "0 /s"
    if per_second < 1:
        return f"{per_second * 60:.1f} /min" if per_second * 60 < 10 else f"{per_second * 60:.0f} /min"
    return f"{per_second:.1f} /s" if per_second < 10 else f"{per_second:,.0f} /s"


def plural(number: float, one: str, many: str = "") -> str:
    return f"{number:,.0f} {one if number == 1 else many or one + 's'}"


def visible(text: object) -> str:
    """Control characters made visible, so that a value cannot play tricks with the reader; line breaks stay."""
    return escape_for_json(str(text))


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
    """One column per bucket, the series from the bottom up; labels hold the numbers for those who cannot see it."""
    most = max((sum(counts.values()) for _, counts in buckets), default=0)
    top = nice(most)
    step = width / max(len(buckets), 1)
    bars: list[Bar] = []
    for place, (bucket, counts) in enumerate(buckets):
        below = 0.0
        for name in series:
            if n := counts.get(name, 0):
                tall = max(n / top * height, 1.5)
                below += tall
                shape = (place * step + 1, height - below, max(step - 2, 1), tall)
                bars.append(Bar(*shape, name, f"{bucket}: {n:,} {name}"))
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


HERE: Final = Path(__file__).parent
STATIC: Final = HERE / "static"
_TIME: Final = Markup('<time datetime="{iso}" title="{iso}">{clock}<span class="muted"> UTC · {ago}</span></time>')
_BACKTICKS: Final = re.compile(r"`([^`\n]{1,200})`")
_SHORT: Final = Markup(
    '<time datetime="{iso}" title="{clock} UTC">{ago}<span class="abs"> {short}<span class="zone"> UTC</span></span>'
    "</time>"
)


@pass_context
def _when(context: Context, at: datetime | None) -> Markup | str:
    """A time in UTC with the relative one beside it."""
    if at is None:
        return "-"
    return _TIME.format(iso=iso(at), clock=clock(at), ago=ago(at, context["now"]))


@pass_context
def _ago(context: Context, at: datetime | None) -> Markup | str:
    """The relative time; in a table the one in UTC stands under it, elsewhere under the pointer."""
    if at is None:
        return "-"
    now = context["now"]
    return _SHORT.format(iso=iso(at), clock=clock(at), ago=ago(at, now), short=short_clock(at, now))


@pass_context
def query(context: Context, **changed: Any) -> str:
    """This page's query string with some parts changed; None and "" take one away. Filters live in the URL."""
    return link("", **dict(context["query"]) | changed) or "?"


def coded(text: str) -> Markup:
    """Our own sentences name commands in backticks; everything is escaped before."""
    return Markup(_BACKTICKS.sub(r"<code>\1</code>", str(escape(visible(text)))))  # noqa: S704


def link(path: str, /, **parts: Any) -> str:
    """An address with what is given of a query string."""
    pairs = [(name, value) for name, value in parts.items() if value not in (None, "")]
    return path + (f"?{urlencode(pairs, doseq=True)}" if pairs else "")


def _static_version() -> str:
    """Changes with any static file, so that browsers may keep them."""
    files = sorted(path for path in STATIC.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:10]


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        # A program that is being upgraded must not meet the next one's templates.
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        when=_when,
        ago=_ago,
        age=lambda seconds: "-" if seconds is None else age(seconds),
        count=count,
        rate=rate,
        size=size,
        visible=visible,
        coded=coded,
    )
    made.globals.update(
        query_with=query,
        link=link,
        plural=plural,
        spark=spark,
        version=__version__,
        static=_static_version(),
        error_codes=[str(code) for code in Code],
    )
    return made


ENVIRONMENT: Final = _environment()


def render(request: Request, template: str, *, status_code: int = 200, **values: Any) -> HTMLResponse:
    """A page, with what every page knows: who reads it, the time, what was asked."""
    state = request.app.state
    params = request.query_params
    asked = {name: params.getlist(name) if len(params.getlist(name)) > 1 else params[name] for name in params}
    known = {
        "person": getattr(request.state, "person", None),
        "tokens": state.gate.tokens is not None,
        "projection": state.projection,
        "theme": request.cookies.get("outbox_theme") if request.cookies.get("outbox_theme") in THEMES else None,
        "path": request.url.path,
        "here": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        "query": {name: parts for name, parts in asked.items() if parts},
        "now": datetime.now(UTC),
        "said": _SAID.get(params.get("said", ""), ""),
        "said_by": said_by(request),
    }
    return HTMLResponse(ENVIRONMENT.get_template(template).render(known | values), status_code)


THEMES: Final = ("light", "dark")
NAME_COOKIE: Final = "outbox_by"
# A closed list: nothing from the address is shown as our own words.
_SAID: Final = {
    "replayed": "Replay started.",
    "discarded": "Discarded. The row is kept; a replay by its id brings it back.",
    "cancelled": "Cancelled. What had moved stays moved.",
    "paused": "Paused. Every projector stops claiming within two seconds.",
    "resumed": "Resumed.",
    "redelivered": "Queued for delivery again.",
    "pruned": "Pruned.",
    "requested": "Asked for. It will be projected again.",
}


def said_by(request: Request) -> str:
    """The name that a person gave last time on this browser, or the account that runs the console."""
    if kept := request.cookies.get(NAME_COOKIE):
        return unquote(kept)[:120]
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
