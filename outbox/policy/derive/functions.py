"""Owns which functions of a view are no function of rows alone: what they return can change while no row does."""

from __future__ import annotations

import re
from collections.abc import Iterator

from outbox.policy.derive.facts import Catalogue, Function
from outbox.policy.derive.tree import every_node

_CALLS = ("funcid", "aggfnoid", "winfnoid")
_OF_THE_TIME = re.compile(r"now|transaction_timestamp|statement_timestamp|age")
_OF_THE_SESSION = re.compile(
    r"current_\w+|session_user|inet_\w+|pg_\w+|has_\w+|row_security_active|to_reg\w+|txid_\w+|version|\w+_description"
)
_READING = re.compile(r"(query|table|schema|database|cursor)_to_xml\w*|currval|lastval")
_SQL_VALUES = {"time": range(9), "session": range(9, 15)}  # CURRENT_DATE ... LOCALTIMESTAMP, then CURRENT_ROLE and the like

_REMEDY = {
    "time": "the time: documents would change while no row does. Leave it out, and compare with the time in the search",
    "session": "the session that reads the view. Leave it out",
    "volatile": "chance or a side effect: it is volatile. Leave it out, or declare it STABLE if it only reads",
    "tables": "tables that cannot be seen in the view. Write its query into the view, or declare it IMMUTABLE if it reads none",
}


def problems(catalogue: Catalogue) -> list[str]:
    """Each function by name, with what to do; equal ones once."""
    return list(dict.fromkeys(_problems(catalogue)))


def _problems(catalogue: Catalogue) -> Iterator[str]:
    for query in catalogue.queries():
        for node in every_node(query):
            if node.label == "SQLVALUEFUNCTION":
                sort = next(sort for sort, ops in _SQL_VALUES.items() if node.number("op") in ops)
                name = "CURRENT_DATE, CURRENT_TIMESTAMP or the like" if sort == "time" else "CURRENT_USER or the like"
                yield f"it reads {name}, which depends on {_REMEDY[sort]}."
            for oid in _called(catalogue, node.fields):
                function = catalogue.functions.get(oid)
                sort = _sort(function) if function is not None else None
                if function is not None and sort is not None:
                    yield f"it calls {function.shown}, which depends on {_REMEDY[sort]}."


def _called(catalogue: Catalogue, fields: dict) -> Iterator[int]:
    for name in _CALLS:
        if name in fields:
            yield int(fields[name])
    operator = catalogue.operators.get(int(fields.get("opno", 0) or 0))
    if operator is not None:
        yield operator.function


def _sort(function: Function) -> str | None:
    """None where its result depends on its arguments, and at most on settings such as TimeZone that are pinned."""
    name = function.shown.partition("(")[0].rpartition(".")[2]
    if function.volatility == "v":
        return "volatile"
    if function.volatility == "i":
        return None
    if not function.builtin:
        own = function.language not in ("internal", "c") or function.returns_set
        return "tables" if own else None
    if _OF_THE_TIME.fullmatch(name) and not function.shown.startswith("age(timestamp without time zone, t"):
        return "time"
    if _READING.fullmatch(name):
        return "tables"
    return "session" if _OF_THE_SESSION.fullmatch(name) else None
