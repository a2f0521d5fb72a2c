"""Writes the events of a repair, with their audit in the same transaction. Chooses neither versions nor documents."""

from collections.abc import Sequence
from uuid import UUID

from outbox.policy.audit import Entry
from outbox.policy.mending import Mend
from outbox.store import audit
from outbox.store.events import entity_id_type, typed
from outbox.store.pool import Database
from outbox.store.queries import queries


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
