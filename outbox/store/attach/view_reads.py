"""Owns reading the catalogue about a view: its stored query, those of the views below, and what they name."""

from collections.abc import Iterable
from typing import Any, LiteralString

import psycopg

from outbox.policy.derive.facts import Catalogue, Field, Function, Operator, Relation, Type
from outbox.policy.derive.tree import Node, every_node
from outbox.store.pool import fetch_rows
from outbox.store.queries import queries

_QUERIES = queries("view_reads")
_RELATIONS = ("relid",)
_FUNCTIONS = ("funcid", "aggfnoid", "winfnoid")
_OPERATORS = ("opno",)
_TYPES = ("vartype", "consttype", "resulttype", "funcresulttype", "opresulttype")


def read_catalogue(conn: psycopg.Connection[Any], view: int) -> Catalogue:
    """Everything that deriving asks for. Reads no row of any table."""
    relations = _relations(conn, view)
    trees = [each.query for each in relations.values() if each.query is not None]
    operators = {
        oid: Operator(**row) for oid, row in _read(conn, _QUERIES["read_operators"], _named(trees, _OPERATORS))
    }
    functions = _named(trees, _FUNCTIONS) | {each.function for each in operators.values()}
    row = conn.execute(_QUERIES["loose_collations"], {}).fetchone()
    loose, encoding = row if row is not None else ((), "UTF8")
    return Catalogue(
        view,
        relations,
        {oid: Function(**row) for oid, row in _read(conn, _QUERIES["read_functions"], functions)},
        operators,
        {oid: Type(**row) for oid, row in _read(conn, _QUERIES["read_types"], _named(trees, _TYPES))},
        frozenset(loose),
        "utf-8" if encoding == "UTF8" else "ascii",
    )


def _relations(conn: psycopg.Connection[Any], view: int) -> dict[int, Relation]:
    found: dict[int, Relation] = {}
    wanted = {view}
    while wanted:
        new = [_relation(oid, row) for oid, row in _read(conn, _QUERIES["read_relations"], wanted)]
        found.update((each.oid, each) for each in new)
        wanted = _named((each.query for each in new if each.query is not None), _RELATIONS) - found.keys()
    return found


def _relation(oid: int, row: dict[str, Any]) -> Relation:
    given = (row.pop(name) for name in ("numbers", "names", "quoted_names", "not_null"))
    columns = sorted(map(Field, *given))
    return Relation(oid, columns={each.number: each for each in columns}, **row)


def _named(trees: Iterable[Node], fields: tuple[str, ...]) -> set[int]:
    nodes = (node for tree in trees for node in every_node(tree))
    return {node.number(name) for node in nodes for name in fields if name in node.fields} - {0}


def _read(conn: psycopg.Connection[Any], query: LiteralString, oids: set[int]) -> list[tuple[int, dict[str, Any]]]:
    rows = fetch_rows(conn, query, {"oids": sorted(oids)})
    return [(row["oid"], {name: value for name, value in row.items() if name != "oid"}) for row in rows]
