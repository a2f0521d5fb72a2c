"""Writes the events that people ask for (one entity, refreshes, repairs), with their audit rows. Chooses no version."""

from collections.abc import Callable, Sequence
from uuid import UUID

from outbox.policy.audit import Entry
from outbox.policy.mending import Mend
from outbox.policy.reprojection import Reprojection
from outbox.store import audit
from outbox.store.events import entity_id_type, typed
from outbox.store.pool import Database
from outbox.store.queries import queries


class PostgresEventWriter:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = queries("requests")

    def ask(self, asked: Reprojection, entry: Callable[[UUID, int], Entry]) -> tuple[UUID, int]:
        """The id and the version of the new event."""
        named = {
            "entity_type": asked.entity_type,
            "entity_id": asked.entity_id,
            "op": asked.op,
            "version": asked.version,
            "payload": asked.text,
            "routing": asked.routing,
        }
        with self._database.transaction() as connection:
            row = connection.execute(typed(self._sql["ask"], entity_id_type(connection)), named).fetchone()
            assert row is not None
            id, version = row
            audit.write(connection, [entry(id, version)])
            return id, version

    def refresh(self, entity_type: str, ids: Sequence[str], routings: Sequence[str | None], entry: Entry) -> int:
        """How many were written: one refresh of each."""
        named = {"entity_type": entity_type, "ids": list(ids), "routings": list(routings)}
        with self._database.transaction() as connection:
            query = typed(self._sql["refresh"], entity_id_type(connection))
            written = connection.execute(query, named).rowcount
            audit.write(connection, [entry])
            return written


class PostgresRepairs:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = queries("repairs")

    def write(self, batch: UUID, first: int, mends: Sequence[Mend], entry: Entry) -> int:
        """How many were written. `first` is the number of the first of them in the whole repair."""
        named = {
            "types": [mend.key.entity_type for mend in mends],
            "ids": [mend.key.entity_id for mend in mends],
            "ops": [mend.op for mend in mends],
            "versions": [mend.version for mend in mends],
            "payloads": [mend.text for mend in mends],
            "routings": [mend.routing for mend in mends],
            "keys": [f"repair:{batch}:{first + place}" for place in range(len(mends))],
        }
        with self._database.transaction() as connection:
            query = typed(self._sql["write"], entity_id_type(connection))
            written = connection.execute(query, named).rowcount
            audit.write(connection, [entry])
            return written
