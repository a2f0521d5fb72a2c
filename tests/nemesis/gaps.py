"""Owns the gap between database and index before anyone repairs it: what differs, whether it is explained by what a
server lost, whether the product says it; and the runbook's steps that close it (docs/runbooks/OutboxIndexAhead.md)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any, LiteralString

from labs.ledger import Ledger, LedgerEntry, digest
from tests.nemesis import joined, linked, routed
from tests.nemesis.collect import VIEW
from tests.nemesis.ground import INDEX, Ground
from tests.nemesis.people import People
from tests.nemesis.schedule import KINDS

ROWS: LiteralString = "select id, document from nemesis_rows"
REASON = "servers were lost"
VIEWED = (joined.KIND, routed.KIND, linked.KIND)
SHOWN = 100  # of each kind, in a report


def rows(ground: Ground) -> dict[str, str]:
    """The document of each business row, by its id."""
    return {f"{KINDS[int(id[1:]) % 2]}:{id}": digest(document) for id, document in ground.rows(ROWS)}


def differing(ground: Ground) -> set[str]:
    """By the rows and the view as they are, whatever versions say. Nothing may be open meanwhile."""
    wanted = rows(ground)
    for row in ground.dicts(VIEW):
        wanted[f"{row['entity_type']}:{row['entity_id']}"] = digest(row["document"])
    ground.elastic.indices.refresh(index=INDEX)
    hits = ground.elastic.search(index=INDEX, size=10_000, track_total_hits=True)["hits"]["hits"]
    held: dict[str, list[str]] = {}
    for hit in hits:
        held.setdefault(hit["_id"], []).append(digest(hit["_source"]))
    return {
        name for name in wanted.keys() | held.keys() if held.get(name) != ([wanted[name]] if name in wanted else None)
    }


class Gaps:
    def __init__(
        self, ground: Ground, people: People, ledger: Ledger, settled: Callable[[], None], say: Callable[[str], None]
    ) -> None:
        self._ground = ground
        self._people = people
        self._ledger = ledger
        self._settled = settled
        self._say = say

    def find_and_mend(self, withdrawn: Iterable[LedgerEntry], *, by_linked: bool) -> dict[str, Any]:
        """`by_linked`: commits of attached tables may be lost too, which no ledger knows."""
        gap = differing(self._ground)
        lost = list(withdrawn)
        names = {entry.document for entry in lost}
        unexplained = {name for name in gap - names if not (by_linked and name.startswith(f"{linked.KIND}:"))}
        said = self._verify()
        named = {one["id"] for kind in said.get("first", {}).values() for one in kind}
        full = {kind for kind, found in said.get("first", {}).items() if len(found) >= SHOWN}
        told: dict[str, Any] = {
            "withdrawn": len(lost),
            "found": len(gap),
            "documents": sorted(gap)[:200],
            "unexplained": sorted(unexplained)[:50],
            "verify": said.get("exit"),
            "counts": said.get("sentence"),
            "unsaid": [] if full else sorted(gap - named)[:50],
            "cut": sorted(full),
            "doctor": self._doctor(),
        }
        self._say(f"{len(gap)} documents differ after {len(lost)} lost commits: {said.get('sentence')}")
        self._mend()
        return told

    def _verify(self) -> dict[str, Any]:
        said = self._people.verify(patience=300)
        found = json.loads(said.out) if said.out.strip().startswith("{") else {}
        return {**found, "exit": said.code}

    def _doctor(self) -> list[str]:
        said = self._people.outbox("doctor", "--json", patience=120)
        found = json.loads(said.out) if said.out.strip().startswith("{") else {"findings": []}
        wanted = [one for one in found["findings"] if one["name"] in ("sequence", "ahead", "versions")]
        return [f"{one['name']}: {one['verdict']}: {one['detail'][:160]}" for one in wanted]

    def _mend(self) -> None:
        """In the runbook's order."""
        self._say("repairing by the runbook")
        who = ("--by", "nemesis", "--reason", REASON, "--rate", "0", "--yes")
        self._people.outbox("refresh", "--all", *who, patience=120)
        self._settled()
        self._people.outbox("repair", *who, "--expect-deletes", "10000", patience=120)
        self._settled()
        for one in self._verify().get("first", {}).get("unknown", []):
            self._delete(one)
        self._settled()

    def _delete(self, one: dict[str, Any]) -> None:
        """A document that only its owner can judge: its row is gone, or was never there."""
        kind, entity, version = one["entity_type"], one["entity_id"], int(one["elasticsearch_version"])
        query: LiteralString = "select outbox_enqueue(%s, %s, 'delete', version => %s)::text"
        id = self._ground.value(query, [kind, entity, version])
        self._ledger.add(LedgerEntry(str(id), kind, entity, "delete", version, "", time.time()))
