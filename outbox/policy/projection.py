"""Says whether two workers of one database would write an entity type to different indexes. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Projects:
    """Which entity types a worker claims (`only` empty: all but `never`), and the index of each."""

    index: str
    index_map: Mapping[str, str] = field(default_factory=dict)
    only: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        return cls(stored["index"], stored["map"], frozenset(stored["only"]), frozenset(stored["never"]))

    def stored(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "map": dict(self.index_map),
            "only": sorted(self.only),
            "never": sorted(self.never),
        }

    def target(self, entity_type: str | None) -> str | None:
        """None: it is not claimed. A type without a name stands for all that nobody names."""
        if entity_type in self.never or (self.only and entity_type not in self.only):
            return None
        return self.index_map.get(entity_type, self.index) if entity_type is not None else self.index

    def conflict(self, other: Self) -> str | None:
        """The first entity type that both claim for different indexes, with these."""
        named = {*self.index_map, *other.index_map, *self.only, *other.only, *self.never, *other.never}
        for each in (None, *sorted(named)):
            ours, theirs = self.target(each), other.target(each)
            if ours is not None and theirs is not None and ours != theirs:
                return f"{each or 'every entity type'} to {theirs}, and this one to {ours}"
        return None
