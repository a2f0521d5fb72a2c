"""Creates an index that is safe to project to. It writes no document."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from outbox.errors import OutboxError
from outbox.ports import CreatedIndex
from outbox.sink.client import Elastic, quoted
from outbox.sink.leftover import Leftover, leftover

GC_DELETES: Final = "1h"
# Above the templates that products install (at most 500), so that this one is used.
TEMPLATE_PRIORITY: Final = 600


class IndexRefused(OutboxError):
    """The search server refused to create the index. Correct the mappings or settings that it names, or grant what
    docs/security.md lists for an administrator."""


class IndexExists(OutboxError):
    """An index or alias of that name already exists. Check it with `outbox index check`. Nothing was changed."""


class ElasticIndices:
    """For commands: errors are raised as OutboxError, with a remedy."""

    def __init__(self, elastic: Elastic) -> None:
        self._elastic = elastic
        self._ask = partial(elastic.content, refused=IndexRefused)

    def create(
        self,
        name: str,
        mappings: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> CreatedIndex:
        """Creates `NAME-v1`, the alias `NAME`, and a template for both that forbids automatic creation.

        The template comes first: after it, no index of this name can be created with a guessed mapping.
        """
        first = f"{name}-v1"
        wanted = {"gc_deletes": GC_DELETES, **(settings or {})}
        dialect = self._elastic.required()
        self._make_room(name, first)
        template = {
            "index_patterns": [name, f"{name}-v*"],
            "priority": TEMPLATE_PRIORITY,
            "template": {"settings": {"index": wanted}, "mappings": dict(mappings or {})},
            "_meta": {"made_by": "outbox index create"},
        }
        self._ask("PUT", f"/_index_template/{quoted(name)}", dialect.template(template))
        created = {"aliases": {name: {"is_write_index": True}}, "settings": dialect.for_create({})}
        self._ask("PUT", f"/{quoted(first)}", created)
        return CreatedIndex(first, name, name)

    def _make_room(self, *names: str) -> None:
        """Raises IndexExists. What a write created and could not fill is removed, after a count."""
        path = f"/{','.join(map(quoted, names))}/_settings?flat_settings=true&ignore_unavailable=true"
        found = self._ask("GET", path)
        kinds = {index: leftover(self._elastic, index, about.get("settings", {})) for index, about in found.items()}
        if any(kind is not Leftover.YES for kind in kinds.values()):
            raise IndexExists(_why_not(names, kinds))
        for index in kinds:
            self._ask("DELETE", f"/{quoted(index)}")


def _why_not(names: Sequence[str], kinds: Mapping[str, Leftover]) -> str:
    uncounted = [index for index, kind in kinds.items() if kind is Leftover.UNCOUNTED]
    if uncounted:
        return f"{', '.join(uncounted)}, blocked as one that a write created, and nobody says whether it is empty"
    name, first = names
    if kinds.get(name) is Leftover.YES:  # only the alias was lost
        return (
            f"{first} is there, and {name} is an empty index that a write created in place of its alias. Put the alias"
            f" back in one request: POST /_aliases with remove_index for {name} and add for {first}"
        )
    return " or ".join(names)
