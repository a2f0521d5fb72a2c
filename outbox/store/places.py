"""Notes where documents with a routing are written, before they are; forgets a place only after its delete."""

from collections.abc import Iterable, Sequence
from typing import Any

from outbox.policy.drift import Key
from outbox.policy.places import NotedPlace
from outbox.store.pool import TopicStore


class PostgresPlaces(TopicStore, topic="places"):
    def note(self, places: Sequence[NotedPlace]) -> None:
        self._run("note", **_columns(places))

    def of(self, keys: Iterable[Key]) -> dict[Key, list[NotedPlace]]:
        wanted = list(dict.fromkeys(keys))
        rows = self._all("of", types=[key.entity_type for key in wanted], ids=[key.entity_id for key in wanted])
        found: dict[Key, list[NotedPlace]] = {key: [] for key in wanted}
        for kind, id, gone, routing, drawn in rows:
            found[Key(kind, id)].append(NotedPlace(Key(kind, id), gone, routing, drawn))
        return found

    def clear(self, places: Sequence[NotedPlace]) -> None:
        self._run("clear", **_columns(places))


def _columns(places: Sequence[NotedPlace]) -> dict[str, Any]:
    return {
        "types": [place.key.entity_type for place in places],
        "ids": [place.key.entity_id for place in places],
        "gone": [place.gone for place in places],
        "routings": [place.routing for place in places],
        "drawn": [place.drawn for place in places],
    }
