"""Loads the named queries of the .sql files beside it.

`-- name: claim` opens a query and the next line says what it is for. A name that begins with `_` is a fragment;
`-- include: _take` stands for its text, so that what several claims share is written once. So do the marks of the two
filters, which are comments: `filters.sql`.
"""

import re
from functools import cache
from importlib.resources import files
from typing import LiteralString

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_INCLUDE = re.compile(r"^-- include: (\w+)\s*$", re.MULTILINE)


_FILTER = re.compile(r"/\* and (audit )?filter(?: by (\w+))? \*/")


@cache
def queries(topic: str) -> dict[str, LiteralString]:
    """Every query of `topic`.sql by its name. Literal by construction: the files ship with the code."""
    texts = _texts(topic)
    whole = {name: _INCLUDE.sub(lambda m: texts[m[1]], sql) for name, sql in texts.items()}
    return {name: _FILTER.sub(_filter, sql) for name, sql in whole.items() if not name.startswith("_")}


@cache
def _texts(topic: str) -> dict[str, LiteralString]:
    parts = _NAME.split(files(__package__).joinpath(f"{topic}.sql").read_text(encoding="utf-8"))[1:]
    return {name: sql.strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}


def _filter(mark: re.Match[str]) -> str:
    """Of events, by the time of failure where the mark names no other."""
    found = _texts("filters")["_audit" if mark[1] else "_event"]
    return "\n" + found.replace("{time}", mark[2] or "failed_at") + "\n"


def topics() -> list[str]:
    return sorted(f.name.removesuffix(".sql") for f in files(__package__).iterdir() if f.name.endswith(".sql"))
