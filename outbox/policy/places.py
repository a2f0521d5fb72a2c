"""Where documents with a routing are: which places of an entity its document must leave. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from outbox.policy.drift import Key


class NotedPlace(NamedTuple):
    """A place that a document was written to, or is about to be, under the number that was drawn for its read. `gone`:
    the read found no entity. No routing is an empty one, as for Elasticsearch."""

    key: Key
    gone: bool
    routing: str
    drawn: int


def left(rows: Iterable[NotedPlace]) -> list[NotedPlace]:
    """Every place of one entity except that of the highest number: from each the document goes, under the place's own
    number. Under the newest it would remove the fresh document on a shared shard, because equal versions pass."""
    return sorted(rows, key=lambda place: place.drawn)[:-1]
