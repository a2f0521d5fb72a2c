"""Owns which functions of a view are no function of rows alone: what they return can change while no row does."""

from __future__ import annotations

import re
from collections.abc import Iterator

from outbox.policy.derive.facts import Catalogue, Function
from outbox.policy.derive.tree import Node, every_node

_CALLS = ("funcid", "aggfnoid", "winfnoid")
_OF_THE_TIME = re.compile(r"now|transaction_timestamp|statement_timestamp|age")
_OF_THE_SESSION = re.compile(
    r"current_\w+|session_user|inet_\w+|pg_\w+|has_\w+|row_security_active|to_reg\w+|txid_\w+|version|\w+_description"
)
_READING = re.compile(r"(query|table|schema|database|cursor)_to_xml\w*|currval|lastval")
_FIRST_OF_THE_SESSION = 9
"""In the order of PostgreSQL: CURRENT_DATE to LOCALTIMESTAMP(n), then CURRENT_ROLE to CURRENT_SCHEMA."""

_REMEDY = {
    "time": "the time: documents would change while no row does. Leave it out, and compare with the time in the search",
    "session": "the session that reads the view. Leave it out",
    "volatile": "chance or a side effect: it is volatile. Leave it out, or declare it STABLE if it only reads",
    "tables": "tables that the view does not show. Write its query into the view, or make it IMMUTABLE",
}
_OF_TIME = f"it reads CURRENT_DATE, CURRENT_TIMESTAMP or the like, which depends on {_REMEDY['time']}."
_OF_SESSION = f"it reads CURRENT_USER or the like, which depends on {_REMEDY['session']}."


def problems(catalogue: Catalogue) -> Iterator[str]:
    """Each function by name, with what to do."""
    for query in catalogue.queries():
        for node in every_node(query):
            if node.label == "SQLVALUEFUNCTION":  # CURRENT_DATE and the like are no calls
                yield _OF_TIME if node.number("op") < _FIRST_OF_THE_SESSION else _OF_SESSION
            for function in _called(catalogue, node):
                if (sort := _sort(function)) is not None:
                    yield f"it calls {function.shown}, which depends on {_REMEDY[sort]}."


def _called(catalogue: Catalogue, node: Node) -> Iterator[Function]:
    operator = catalogue.operators.get(node.number("opno"))
    oids = [node.number(name) for name in _CALLS] + ([operator.function] if operator is not None else [])
    return (catalogue.functions[oid] for oid in oids if oid in catalogue.functions)


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
