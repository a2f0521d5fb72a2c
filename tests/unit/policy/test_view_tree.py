"""The notation of PostgreSQL's stored query trees; what they mean is tested on a real server."""

import pytest

from outbox.policy.derive.tree import Node, Value, every_node, read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<>", None),
        ('""', ""),
        ("(i 1 2)", ["i", "1", "2"]),
        ('("a" "two\\ words" "\\"odd\\"")', ["a", "two words", '"odd"']),
        ("{VAR :varno 1 :varlevelsup 0}", Node("VAR", {"varno": "1", "varlevelsup": "0"})),
        ("{A :name *SELECT*\\ 1 :next \\{\\)}", Node("A", {"name": "*SELECT* 1", "next": "{)"})),
        ("{A :resname :odd :resjunk false}", Node("A", {"resname": ":odd", "resjunk": "false"})),
        ("{C :value 5 [ 20 0 0 0 120 ] :at -1}", Node("C", {"value": ["5", "20", "0", "0", "0", "120"], "at": "-1"})),
        ("{A :b {B :c <>} :d ({D} {E})}", Node("A", {"b": Node("B", {"c": None}), "d": [Node("D"), Node("E")]})),
    ],
)
def test_a_text_is_read_into_values_lists_and_nodes(text: str, value: Value) -> None:
    assert read(text) == value


def test_a_deep_tree_is_walked_without_recursion() -> None:
    node = Node("LEAF")
    for _ in range(5_000):
        node = Node("OP", {"args": [node]})
    assert sum(1 for _ in every_node(node)) == 5_001
