"""Schemas made at random, attached by what their view says: whatever writers do, and one daemon is killed, in the end
every document is what the view says, or a table was refused by name.

`OUTBOX_TEST_SCHEMAS` makes it longer (200 is the full length), `OUTBOX_TEST_FIRST_SCHEMA` begins elsewhere.
"""

import os
import random
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import pytest
from elasticsearch import Elasticsearch

from tests.fixtures.commands import Called, Outbox
from tests.fixtures.depth import depth
from tests.fixtures.hops import differing
from tests.fixtures.overlapping import open_events, statuses
from tests.fixtures.processes import StartProcess
from tests.fixtures.waiting import eventually
from tests.schemas.shape import Shape, shape
from tests.schemas.view import view
from tests.schemas.writers import Writers

SCHEMAS: Final = int(os.environ.get("OUTBOX_TEST_SCHEMAS") or depth(2, 10))
FIRST: Final = int(os.environ.get("OUTBOX_TEST_FIRST_SCHEMA", "1"))
# After each round every document is compared: what one round leaves wrong, a later change often puts right.
ROUNDS: Final = 5
TRANSACTIONS: Final = 2  # of each writer in a round
REFUSED: Final = 2  # the exit code
SETTINGS: Final = {"OUTBOX_POLL_INTERVAL_SECONDS": "0.01", "OUTBOX_BATCH_SIZE": "5", "OUTBOX_LEASE_SECONDS": "3"}


@dataclass(frozen=True)
class Schema:
    seed: int
    shape: Shape
    view: str

    @property
    def script(self) -> str:
        return ";\n".join([*self.shape.statements(), self.view])


def schema(seed: int) -> Schema:
    dice = random.Random(seed)
    made = shape(dice)
    return Schema(seed, made, view(made, dice).statement)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SCHEMAS))
def test_every_document_of_a_random_schema_is_what_its_view_says(
    seed: int,
    database: str,
    connection: psycopg.Connection[Any],
    es: Elasticsearch,
    index: str,
    outbox: Outbox,
    start_daemon: StartProcess,
) -> None:
    made = schema(seed)
    print(f"schema {seed}:\n{made.script}")
    connection.execute(made.script.encode())
    done = outbox("attach", "--from-view", "--yes")
    print(done.out)
    if done.code:
        refused_by_name(made, done)
        return
    daemons = [start_daemon(**SETTINGS) for _ in range(2)]
    for daemon in daemons:
        daemon.wait_for_http("/readyz")
    crowd = Writers(database, made.shape, seed)
    try:
        crowd.fill()
        for number in range(ROUNDS):
            crowd.write(TRANSACTIONS)
            if number == ROUNDS // 2:
                daemons[seed % 2].kill()
            eventually(lambda: not open_events(connection), what="every event settled")
            assert differing(connection, es, index) == {}, f"after round {number} of schema {seed}"
    finally:
        crowd.close()
    print(f"{crowd.refused} transactions met another one")
    assert statuses(connection) == {"done"}


def refused_by_name(made: Schema, done: Called) -> None:
    """Nothing is attached by halves, and the message names a table of the view."""
    assert done.code == REFUSED, done.err
    assert any(table.name in done.err for table in made.shape.tables), done.err
