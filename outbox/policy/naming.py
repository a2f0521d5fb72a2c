"""How an entity names its document, and back for whoever starts from the index. Knows no server."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from outbox.policy.drift import Key


class Address(NamedTuple):
    """Where a document lives. Routing belongs to it: one `_id` under two routings is two documents."""

    index: str  # type: ignore[assignment]
    id: str
    routing: str | None


@dataclass(frozen=True, slots=True)
class Naming:
    """`composed`: `entity_type:entity_id`, the default; otherwise the entity id alone, which does not tell the type."""

    composed: bool
    index_of: Callable[[str], str]

    def id_of(self, key: Key) -> str:
        return self.document_id(*key)

    def prefix(self, entity_type: str) -> str:
        """What stands before the entity id in the id of its document."""
        return f"{entity_type}:" if self.composed else ""

    def document_id(self, entity_type: str, entity_id: str) -> str:
        return self.prefix(entity_type) + entity_id

    def address(self, entity_type: str, entity_id: str, routing: str | None = None) -> Address:
        return Address(self.index_of(entity_type), self.document_id(entity_type, entity_id), routing)

    def keys_of(self, id: str, types: tuple[str, ...]) -> list[Key]:
        """The entities that this id may mean: one, or one per type. None: no event of ours could have made it."""
        if not self.composed:
            return [Key(kind, id) for kind in types]
        entity_type, colon, entity_id = id.partition(":")
        return [Key(entity_type, entity_id)] if colon and entity_type and entity_id else []
