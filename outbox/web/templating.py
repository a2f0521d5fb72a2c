"""Owns the templates: everything is escaped, an unknown name is an error, times and numbers read alike everywhere."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from outbox import __version__
from outbox.policy.outcome import Code
from outbox.web import figures

HERE: Final = Path(__file__).parent
STATIC: Final = HERE / "static"
_TIME: Final = Markup('<time datetime="{iso}" title="{iso}">{clock}<span class="muted"> UTC · {ago}</span></time>')
_BACKTICKS: Final = re.compile(r"`([^`\n]{1,200})`")
_SHORT: Final = Markup(
    '<time datetime="{iso}" title="{clock} UTC">{ago}<span class="abs"> {short}<span class="zone"> UTC</span></span>'
    "</time>"
)


@pass_context
def when(context: Context, at: datetime | None) -> Markup | str:
    """A time in UTC with the relative one beside it."""
    if at is None:
        return "-"
    return _TIME.format(iso=figures.iso(at), clock=figures.clock(at), ago=figures.ago(at, context["now"]))


@pass_context
def ago(context: Context, at: datetime | None) -> Markup | str:
    """The relative time; in a table the one in UTC stands under it, elsewhere under the pointer."""
    if at is None:
        return "-"
    now = context["now"]
    return _SHORT.format(
        iso=figures.iso(at), clock=figures.clock(at), ago=figures.ago(at, now), short=figures.short_clock(at, now)
    )


@pass_context
def query(context: Context, **changed: Any) -> str:
    """This page's query string with some parts changed; None and "" take one away. Filters live in the URL."""
    kept = dict(context["query"]) | changed
    pairs = [(name, value) for name, value in kept.items() if value not in (None, "")]
    return f"?{urlencode(pairs, doseq=True)}" if pairs else "?"


def coded(text: str) -> Markup:
    """Our own sentences name commands in backticks; everything is escaped before."""
    return Markup(_BACKTICKS.sub(r"<code>\1</code>", str(escape(figures.visible(text)))))  # noqa: S704


def link(path: str, **parts: Any) -> str:
    """An address with what is given of a query string."""
    pairs = [(name, value) for name, value in parts.items() if value not in (None, "")]
    return path + (f"?{urlencode(pairs, doseq=True)}" if pairs else "")


def _static_version() -> str:
    """Changes with any static file, so that browsers may keep them."""
    digest = hashlib.sha256()
    for file in sorted(path for path in STATIC.rglob("*") if path.is_file()):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:10]


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
        when=when,
        ago=ago,
        age=figures.age,
        count=figures.count,
        rate=figures.rate,
        size=figures.size,
        visible=figures.visible,
        coded=coded,
    )
    made.globals.update(
        query_with=query,
        link=link,
        plural=figures.plural,
        version=__version__,
        static=_static_version(),
        error_codes=[str(code) for code in Code],
    )
    return made


ENVIRONMENT: Final = _environment()


def render(request: Request, template: str, *, status_code: int = 200, **values: Any) -> HTMLResponse:
    """A page, with what every page knows: who reads it, the time, what was asked."""
    state = request.app.state
    asked = {name: parts for name, parts in _query(request).items() if parts}
    known = {
        "person": getattr(request.state, "person", None),
        "tokens": state.gate.tokens is not None,
        "projection": state.projection,
        "theme": request.cookies.get("outbox_theme") if request.cookies.get("outbox_theme") in THEMES else None,
        "path": request.url.path,
        "here": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        "query": asked,
        "now": datetime.now(UTC),
        "said": said(request),
    }
    return HTMLResponse(ENVIRONMENT.get_template(template).render(known | values), status_code)


THEMES: Final = ("light", "dark")
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


def said(request: Request) -> str:
    """A closed list: nothing from the address is shown as our own words."""
    return _SAID.get(request.query_params.get("said", ""), "")


def _query(request: Request) -> dict[str, Any]:
    params = request.query_params
    return {name: params.getlist(name) if len(params.getlist(name)) > 1 else params[name] for name in params}
