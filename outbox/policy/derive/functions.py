"""Owns which functions of a view are no function of rows alone: what they return can change while no row does."""

import re
from collections.abc import Iterator

from outbox.policy.derive.facts import Catalogue, Function
from outbox.policy.derive.tree import Node, every_node

_CALLS = ("funcid", "aggfnoid", "winfnoid")
_OF_THE_MOMENT = re.compile(
    r"now|transaction_timestamp|statement_timestamp|age|current_\w+|session_user|inet_\w+|pg_\w+|has_\w+"
    r"|row_security_active|to_reg\w+|txid_\w+|version|\w+_description"
)
_READING = re.compile(r"(query|table|schema|database|cursor)_to_xml\w*|currval|lastval")

_MOMENT = (
    "the time or the session: documents would change while no row does. Leave it out, and compare with the time in the "
    "search"
)
_VOLATILE = "chance or a side effect: it is volatile. Leave it out, or declare it STABLE if it only reads"
_TABLES = "tables that the view does not show. Write its query into the view, or make it IMMUTABLE"


def problems(catalogue: Catalogue) -> Iterator[str]:
    for query in catalogue.queries():
        for node in every_node(query):
            if node.label == "SQLVALUEFUNCTION":  # these are no calls
                yield f"it reads CURRENT_DATE, CURRENT_USER or the like, which depends on {_MOMENT}."
            for function in _called(catalogue, node):
                if (what := _depends_on(function)) is not None:
                    yield f"it calls {function.shown}, which depends on {what}."


def _called(catalogue: Catalogue, node: Node) -> Iterator[Function]:
    operator = catalogue.operators.get(node.number("opno"))
    oids = [node.number(name) for name in _CALLS] + ([operator.function] if operator is not None else [])
    return (catalogue.functions[oid] for oid in oids if oid in catalogue.functions)


def _depends_on(function: Function) -> str | None:
    """None where its result depends on its arguments, and at most on settings such as TimeZone that are pinned."""
    name = function.shown.partition("(")[0].rpartition(".")[2]
    if function.volatility == "v":
        return _VOLATILE
    if function.volatility == "i":
        return None
    if not function.builtin:
        own = function.language not in ("internal", "c") or function.returns_set
        return _TABLES if own else None
    if _READING.fullmatch(name):
        return _TABLES
    return _MOMENT if _OF_THE_MOMENT.fullmatch(name) else None
