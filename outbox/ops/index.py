"""Creating and checking the target indexes of the settings, or one that a person names. Writes no document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outbox.ports import CreatedIndex, Finding, IndexCheck, Indices


@dataclass(frozen=True, slots=True)
class IndexDesk:
    indices: Indices
    checks: IndexCheck
    targets: Sequence[str]
    require_server: Callable[[], Finding]  # raises where nobody answers, or not Elasticsearch

    def create(
        self, name: str, mappings: Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None
    ) -> CreatedIndex:
        return self.indices.create(name, mappings, settings)

    def check(self, names: Sequence[str]) -> list[Finding]:
        """The server first: where nobody answers there is nothing to be found out about an index."""
        server = self.require_server()
        return [server, *(finding for name in names for finding in self.checks.check(name))]
