"""Owns questions about one SELECT of a stored query, by its nodes alone."""

from collections.abc import Iterator

from outbox.policy.derive.tree import Node, every_node


def is_variable(node: Node) -> bool:
    """Whether it speaks of a row; a comparison with a constant joins nothing."""
    return any(each.label in ("VAR", "SUBLINK") for each in every_node(node))


def arms(operation: Node) -> Iterator[int]:
    """The entries that UNION, INTERSECT and EXCEPT combine."""
    for name in ("larg", "rarg"):
        arm = operation.node(name)
        if arm is not None and arm.label == "SETOPERATIONSTMT":
            yield from arms(arm)
        elif arm is not None:
            yield arm.number("rtindex")


def always_one_row(query: Node) -> bool:
    """Whether it has a row even where nothing meets its conditions: count(*) without GROUP BY is 0."""
    grouped = bool(query.nodes("groupClause")) and not query.nodes("groupingSets")
    aggregates = query.true("hasAggs") or bool(query.nodes("groupingSets")) or query.node("havingQual") is not None
    return not grouped and aggregates


def is_apart(query: Node, entry: Node) -> bool:
    """Whether a row below can only change output rows in which this column is its own: not past a LIMIT, nor across the
    groups of DISTINCT ON and of windows."""
    if query.node("limitCount") or query.node("limitOffset"):
        return False
    groups = [query.nodes("distinctClause")] if query.true("hasDistinctOn") else []
    groups += [each.nodes("partitionClause") for each in query.nodes("windowClause")]
    own = entry.number("ressortgroupref")
    return all(any(each.number("tleSortGroupRef") == own for each in group) for group in groups)
