"""Owns the notation of PostgreSQL's stored query trees (`pg_node_tree`): text into nodes. It knows no meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Union

Value = Union["Node", list["Value"], str, None]

_TOKEN = re.compile(r"[(){}]|(?:\\.|[^\s(){}\\])+", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Node:
    """`label` names what it is, `fields` what it has; what a version of PostgreSQL adds is only one more field."""

    label: str
    fields: dict[str, Value] = field(default_factory=dict)

    def node(self, name: str) -> Node | None:
        value = self.fields.get(name)
        return value if isinstance(value, Node) else None

    def nodes(self, name: str) -> list[Node]:
        return list(nodes_of(self.fields.get(name)))

    def number(self, name: str) -> int:
        return int(self.text(name) or "0")

    def text(self, name: str) -> str | None:
        value = self.fields.get(name)
        return value if isinstance(value, str) else None

    def true(self, name: str) -> bool:
        return self.fields.get(name) == "true"


def nodes_of(value: Value) -> Iterator[Node]:
    """The nodes in a value, without those inside them."""
    if isinstance(value, Node):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from nodes_of(each)


def every_node(value: Value) -> Iterator[Node]:
    """All nodes, however deep, without recursion: a long expression is a deep tree."""
    rest = list(nodes_of(value))
    while rest:
        node = rest.pop()
        yield node
        for inner in node.fields.values():
            rest.extend(nodes_of(inner))


def read(text: str) -> Value:
    """The value that the text stands for: the query of a view is a list of one node."""
    return _Reader(_TOKEN.findall(text)).value()


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._place = 0

    def value(self) -> Value:
        match self._next():
            case "{":
                return self._node()
            case "(":
                return self._list()
            case "<>":
                return None
            case word:
                return _ESCAPED.sub(r"\1", word[1:-1] if word[0] == '"' else word)

    def _next(self) -> str:
        self._place += 1
        return self._tokens[self._place - 1]

    def _is(self, *ends: str) -> bool:
        return self._tokens[self._place] in ends

    def _node(self) -> Node:
        node = Node(self._next())
        while not self._is("}"):
            name = self._next().removeprefix(":")
            value = self.value()
            # A constant's bytes follow their number: 4 [ 1 0 0 0 ].
            node.fields[name] = [value, *self._bytes()] if self._is("[") else value
        self._place += 1
        return node

    def _list(self) -> list[Value]:
        values: list[Value] = []
        while not self._is(")"):
            values.append(self.value())
        self._place += 1
        return values

    def _bytes(self) -> Iterator[str]:
        self._place += 1
        while not self._is("]"):
            yield self._next()
        self._place += 1
