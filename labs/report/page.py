"""Renders report.html and the overview page. One file each, without scripts and network access."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from labs.report.chart import chart
from labs.report.view import View
from labs.snapshots import QUERIES

TEMPLATES = Path(__file__).with_name("templates")
TONES = {"PASS": "ok", "FAIL": "bad", "INCONCLUSIVE": "warn"}


def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    found.globals["css"] = Markup((TEMPLATES / "report.css").read_text(encoding="utf-8"))
    found.globals["tones"] = TONES
    found.filters["code_marked"] = code_marked
    return found


def code_marked(text: str) -> Markup:
    """Text with its `names` as code."""
    parts = [escape(part) for part in text.split("`")]
    return Markup("").join(Markup("<code>{}</code>").format(p) if n % 2 else p for n, p in enumerate(parts))


def render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values)


def page(view: View) -> str:
    about = view.record.about
    return render(
        "report.html",
        view=view,
        about=about,
        chart=Markup(chart(view.record)),
        queries=QUERIES,
        moments=[
            (name, about["snapshots"][name]) for name in ("before", "during", "after") if name in about["snapshots"]
        ],
        statuses=statuses(about["snapshots"]),
        files=sorted(
            str(path.relative_to(view.record.folder)) for path in view.record.folder.rglob("*") if path.is_file()
        ),
    )


def statuses(snapshots: dict[str, Any]) -> list[tuple[str, list[int]]]:
    """Snapshot A side by side: one row per status, one column per moment."""
    seen = [dict(snapshots[name]["A"]["rows"]) for name in ("before", "during", "after") if name in snapshots]
    names = sorted({status for moment in seen for status in moment})
    return [(name, [moment.get(name, 0) for moment in seen]) for name in names]
