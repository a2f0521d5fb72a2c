"""Owns the steps of a rebuild in Elasticsearch: new index, swap of the alias, removal. It writes no document."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from outbox.errors import Conflict, OutboxError
from outbox.ports import AliasState
from outbox.sink.client import Elastic, quoted
from outbox.sink.index import GC_DELETES
from outbox.sink.leftover import Leftover, leftover

GC_DELETES_UNTIL_SWAP: Final = "7d"
# Above the template of `outbox index create` (600), which has the old mapping.
TEMPLATE_PRIORITY: Final = 601


class MappingRefused(OutboxError):
    """The search server rejected the new index. Correct the mapping file. Nothing was started or changed."""


class NotAnAlias(OutboxError):
    """The target is not an alias of exactly one index, so the index cannot be swapped. Create an alias with
    `outbox index create`, or set ELASTIC_INDEX to an alias of one index."""

    exit_code = 78


class AliasMoved(Conflict):
    """The alias was changed by someone else meanwhile. Nothing was changed here. Check it with `outbox index check`."""


class RebuildRefused(OutboxError):
    """The search server refused a step of the rebuild. Grant what docs/security.md lists for an administrator.
    `outbox rebuild --resume` continues where it stopped."""


class ElasticNewIndex:
    def __init__(self, elastic: Elastic) -> None:
        self._elastic = elastic
        self._ask = partial(elastic.content, refused=RebuildRefused)

    # Reading

    def alias(self, target: str) -> AliasState:
        found = self._ask("GET", f"/{quoted(target)}/_alias")
        if target in found:
            raise NotAnAlias(f"{target} is an index")
        if len(found) != 1:
            raise NotAnAlias(f"{target} is an alias of {len(found)} indexes")
        index, about = next(iter(found.items()))
        return AliasState(index, dict(about["aliases"][target]))

    def names(self, target: str) -> Sequence[str]:
        found = self._ask("GET", f"/{quoted(target)}-v*/_alias?expand_wildcards=all", missing_is_fine=True)
        aliases = [alias for about in found.values() for alias in about.get("aliases", {})]
        return [*found, *aliases]

    def count(self, index: str) -> int:
        return int(self._ask("GET", f"/{quoted(index)}/_count").get("count", 0))

    def exists(self, index: str) -> bool:
        """One that a write created against the template is as good as missing; `create` replaces it."""
        return self._leftover(index) not in (None, Leftover.YES)

    def mappings(self, index: str) -> Mapping[str, Any]:
        return dict(self._ask("GET", f"/{quoted(index)}/_mapping")[index].get("mappings", {}))

    def settings(self, index: str) -> Mapping[str, Any]:
        """The settings of an index, without those that the server writes."""
        found = self._ask("GET", f"/{quoted(index)}/_settings?flat_settings=true")[index]["settings"]
        left = self._elastic.required().not_copied
        return {name: value for name, value in found.items() if not name.startswith(left)}

    # Creating and removing

    def create(self, index: str, mappings: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """The template comes first: if the index is deleted, no write can recreate it with a guessed mapping."""
        dialect = self._elastic.required()
        template = {
            "index_patterns": [index],
            "priority": TEMPLATE_PRIORITY,
            "_meta": {"made_by": "outbox rebuild"},
        }
        self._ask("PUT", f"/_index_template/{_template(index)}", dialect.template(template))
        if not dialect.forbids_auto_create and self._leftover(index) is Leftover.YES:
            self._ask("DELETE", f"/{quoted(index)}", missing_is_fine=True)
        wanted = dialect.for_create({**settings, "index.gc_deletes": GC_DELETES_UNTIL_SWAP})
        reply = self._elastic.ask("PUT", f"/{quoted(index)}", {"mappings": dict(mappings), "settings": wanted})
        if reply.status >= 300:
            if not reply.is_busy:
                self._elastic.call("DELETE", f"/_index_template/{_template(index)}")
            raise reply.refusal(MappingRefused if reply.status == 400 else RebuildRefused)

    def _leftover(self, index: str) -> Leftover | None:
        """None: there is no such index."""
        self._elastic.required()
        found = self._ask("GET", f"/{quoted(index)}/_settings?flat_settings=true", missing_is_fine=True)
        return leftover(self._elastic, index, found[index].get("settings", {})) if index in found else None

    def remove(self, index: str) -> None:
        """The index and its template; already removed ones are fine."""
        self._ask("DELETE", f"/{quoted(index)}?ignore_unavailable=true", missing_is_fine=True)
        self._ask("DELETE", f"/_index_template/{_template(index)}", missing_is_fine=True)

    # Swapping

    def refresh(self, index: str) -> None:
        self._ask("POST", f"/{quoted(index)}/_refresh")

    def remember_deletes_as_usual(self, index: str) -> None:
        self._ask("PUT", f"/{quoted(index)}/_settings", {"index.gc_deletes": GC_DELETES})

    def swap(self, target: str, old: str, new: str) -> None:
        """One atomic request: no search ever finds the alias without an index, or with two."""
        state = self.alias(target)
        if state.index == new:
            return
        if state.index != old:
            raise AliasMoved(f"{target} is an alias of {state.index}, not of {old}")
        carried = {name: value for name, value in state.about.items() if name != "is_write_index"}
        actions = [
            {"remove": {"index": old, "alias": target, "must_exist": True}},
            {"add": {"index": new, "alias": target, "is_write_index": True, **carried}},
        ]
        self._ask("POST", "/_aliases", {"actions": actions})


def _template(index: str) -> str:
    return quoted(f"outbox-rebuild-{index}")
