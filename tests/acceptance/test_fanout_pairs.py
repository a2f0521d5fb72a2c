"""The race of a rename and a move over two hops, on real processes and servers: whichever commits last, every document
has the new name.

One transaction renames an author or a country while another makes the link by which an article reads that row; neither
sees the other, and they commit in either order. `OUTBOX_TEST_PAIRS` and `OUTBOX_TEST_SEEDS` make it longer (300 and 10
are the full length).
"""

import os
import random
from dataclasses import dataclass
from typing import Any, Final, LiteralString
from uuid import UUID

import psycopg
from elasticsearch import Elasticsearch

from tests.fixtures.commands import Outbox
from tests.fixtures.hops import TABLES, attach_all, differing
from tests.fixtures.overlapping import Desk, open_events, pause, play, settled, statuses
from tests.fixtures.processes import StartProcess
from tests.fixtures.waiting import eventually

PAIRS: Final = int(os.environ.get("OUTBOX_TEST_PAIRS", "300"))
SEEDS: Final = int(os.environ.get("OUTBOX_TEST_SEEDS", "1"))
RENAME_FIRST: Final = 0.3  # of the pairs: the rename commits before the link; else after it, which is the race
SETTLED_BETWEEN: Final = 0.5  # of the pairs: the second commit waits until the events of the first are settled

# Each pair has rows of its own: article n belongs to author 2n in country 2n, and the free author 2n + 1 lives in
# country 2n + 1. No two pairs wait for each other.
FILL: Final = (
    "insert into country select n, 'country ' || n from generate_series(0, %(pairs)s * 2 - 1) n",
    "insert into author select n, n, 'author ' || n from generate_series(0, %(pairs)s * 2 - 1) n",
    "insert into article select n, n * 2, 'article ' || n from generate_series(0, %(pairs)s - 1) n",
    "analyze country, author, article",
)


@dataclass(frozen=True)
class Scene:
    """What is renamed, and what makes the link to it; %(n)s is the article."""

    rename: LiteralString
    link: LiteralString


MOVE_ARTICLE: Final = "update article set author_id = %(n)s * 2 + 1 where id = %(n)s"
RENAME_AUTHOR: Final = "update author set name = name || ' renamed' where id = %(n)s * 2 + 1"
RENAME_COUNTRY: Final = "update country set name = name || ' renamed' where id = %(n)s * 2 + 1"
MOVE_AUTHOR: Final = "update author set country_id = %(n)s * 2 + 1 where id = %(n)s * 2"
SCENES: Final = (
    Scene(RENAME_AUTHOR, MOVE_ARTICLE),  # one hop
    Scene(RENAME_COUNTRY, MOVE_ARTICLE),  # two hops, the nearer link is new
    Scene(RENAME_COUNTRY, MOVE_AUTHOR),  # two hops, the farther link is new
)


class RenameDesk(Desk):
    def pair(self, article: int, dice: random.Random) -> None:
        """The one that commits first is projected, or is under way, as the other one commits."""
        scene = dice.choice(SCENES)
        self.second.execute(scene.rename, {"n": article})
        self.first.execute(scene.link, {"n": article})
        first, second = self.first, self.second
        if dice.random() < RENAME_FIRST:
            first, second = second, first
        pause(dice, 0.2)
        events = self._commit(first)
        pause(dice)
        if dice.random() < SETTLED_BETWEEN:
            eventually(lambda: settled(self.watch, events), every=0.005)
        self._commit(second)

    def _commit(self, connection: psycopg.Connection[Any]) -> list[UUID]:
        """Its events, which nobody else sees before."""
        mine = "select id from search_outbox_events where xmin = pg_current_xact_id()::xid"
        events = [id for (id,) in connection.execute(mine).fetchall()]
        connection.commit()
        return events


def test_every_document_has_the_new_name_whatever_the_order_in_which_rename_and_move_commit(
    database: str,
    connection: psycopg.Connection[Any],
    es: Elasticsearch,
    index: str,
    outbox: Outbox,
    start_daemon: StartProcess,
) -> None:
    connection.execute(TABLES)
    for statement in FILL:
        connection.execute(statement, {"pairs": SEEDS * PAIRS})
    attach_all(outbox)
    assert outbox("backfill").code == 0
    daemons = [start_daemon(OUTBOX_POLL_INTERVAL_SECONDS="0.01", OUTBOX_BATCH_SIZE="3") for _ in range(2)]
    for daemon in daemons:
        daemon.wait_for_http("/readyz")
    figures = {}
    for seed in range(1, SEEDS + 1):
        play(lambda: RenameDesk(database), range((seed - 1) * PAIRS, seed * PAIRS), seed)
        eventually(lambda: not open_events(connection), what="every event settled")
        wrong = differing(connection, es, index)
        figures[seed] = len(wrong)
        print(f"seed {seed}: {len(wrong)} documents stale after {PAIRS} pairs {list(wrong.items())[:2]}")
    assert sum(figures.values()) == 0, f"stale documents after {PAIRS} pairs, by seed: {figures}"
    assert statuses(connection) == {"done"}
