"""Owns what a nemesis has in its history beside what a lab has, and what follows from it. It judges nothing."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from labs import ledger
from labs.history import History
from labs.ledger import LedgerEntry
from tests.nemesis.joined import REFRESH
from tests.nemesis.load import is_bad


class PlacedDocument(NamedTuple):
    """A document in the index: under which routing ('' is none), and as what."""

    routing: str
    digest: str


class Evidence(History):
    ABOUT = "about.json"
    ENDS = frozenset({"done", "pruned"})  # what was refused is fixed and replayed

    @cached_property
    def acknowledged(self) -> list[LedgerEntry]:
        return [entry for entry in self.attempted if entry.committed]

    @cached_property
    def recovered(self) -> list[LedgerEntry]:
        """Commits without an answer that had happened all the same."""
        return [entry for entry in self.committed if not entry.committed]

    @cached_property
    def attempted(self) -> list[LedgerEntry]:
        """And the refreshes that daemons wrote themselves."""
        return [*ledger.read(self.folder / "ledger.ndjson"), *(LedgerEntry(**row) for row in self.rows("owed"))]

    @cached_property
    def view(self) -> dict[str, PlacedDocument]:
        """Each document that the view has in the end: where it must stand, and as what."""
        return {row["_id"]: PlacedDocument(row.get("routing", ""), row["digest"]) for row in self.rows("view")}

    @cached_property
    def standing(self) -> dict[str, list[PlacedDocument]]:
        """Each document as often as it is in the index. Before there were routings, as a read by id found it."""
        found: dict[str, list[PlacedDocument]] = defaultdict(list)
        by_id = [row for row in self.documents.values() if row.get("found") and not row.get("phantom")]
        for row in self.rows("standing") or by_id:
            found[row["_id"]].append(PlacedDocument(row.get("routing", ""), row["digest"]))
        return dict(found)

    @cached_property
    def seen(self) -> list[dict[str, Any]]:
        return self.rows("seen")

    def sightings(self) -> Iterator[tuple[Hashable, Mapping[str, int]]]:
        """Within one life of Elasticsearch and one index: what a crash had not synced was not acknowledged either."""
        return (((line["life"], line["index"]), line["changed"]) for line in self.seen)

    @cached_property
    def acts(self) -> list[dict[str, Any]]:
        return self.rows("acts")

    @cached_property
    def neighbours(self) -> dict[str, Any]:
        """What the lane of the neighbours left; empty where there was none."""
        path = self.folder / "neighbours.json"
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}

    @cached_property
    def innocents(self) -> list[dict[str, Any]]:
        return self.rows("innocents")

    @property
    def counted(self) -> tuple[float, int]:
        """In the calm coda."""
        return float(self.about["coda_counted"]), int(self.about["coda_steps"])

    def clean_codes(self, worker: str) -> tuple[int, ...]:
        """In the storm PostgreSQL may be down while one drains: it says so, and exits with 3."""
        last = self.about.get("last_workers", self.about["exit_codes"])
        return (0,) if worker in last else (0, 3)

    # What follows

    @cached_property
    def joined(self) -> set[str]:
        """Documents that the view keeps. Their events say nothing about versions or content: the view does."""
        return {entry.document for entry in self.committed if entry.op == REFRESH}

    @cached_property
    def unsettled(self) -> set[str]:
        """What the view keeps, or has come to keep: its newest event is not what it must be."""
        return self.joined | self.view.keys()

    def may_be_refused(self, event_id: str) -> bool:
        """Its document travels with it: no other event's is refused for it. Or what keeps its type has changed: events
        of either sort may have met the other."""
        entry = self.by_id.get(event_id)
        if entry is None or entry.op == "delete":
            return False
        if entry.op == "upsert" and (is_bad(event_id) or entry.version <= self._met_by_lookups.get(entry.document, 0)):
            return True
        return entry.entity_type in self.about.get("moved_types", ())

    @cached_property
    def _met_by_lookups(self) -> dict[str, int]:
        """Of the kept histories on OpenSearch and Kafka, from before loads had routed documents: a third of the upserts
        had no payload, and a lookup of one met the newest document, which the mapping may refuse."""
        highest: dict[str, int] = {}
        if "kinds" not in self.about and "routed_swapped" not in self.about:
            for entry in self.committed:
                if is_bad(entry.id):
                    highest[entry.document] = max(highest.get(entry.document, 0), entry.version)
        return highest

    @cached_property
    def deletes_done(self) -> dict[str, list[tuple[float, int]]]:
        """When each delete of a document was done for the last time, with its version."""
        done: dict[str, float] = {}
        for step in self.steps:
            if step["new_status"] == "done":
                done[step["event_id"]] = float(step["at"])
        found: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for entry in self.committed:
            if entry.op == "delete" and entry.id in done:
                found[entry.document].append((done[entry.id], entry.version))
        return found
