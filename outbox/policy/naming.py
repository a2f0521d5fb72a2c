"""How an entity names its document and back, for those who start from the index. Knows no server."""

from collections.abc import Callable
from dataclasses import dataclass

from outbox.policy.drift import Key


@dataclass(frozen=True, slots=True)
class Naming:
    """`composed`: `entity_type:entity_id`; otherwise the entity id alone, which does not tell the type."""

    composed: bool
    index_of: Callable[[str], str]

    def id_of(self, key: Key) -> str:
        return f"{key.entity_type}:{key.entity_id}" if self.composed else key.entity_id

    def keys_of(self, id: str, types: tuple[str, ...]) -> list[Key]:
        """The entities that this id may mean: one, or one per type. None: no event of ours could have made it."""
        if not self.composed:
            return [Key(kind, id) for kind in types]
        entity_type, colon, entity_id = id.partition(":")
        return [Key(entity_type, entity_id)] if colon and entity_type and entity_id else []
