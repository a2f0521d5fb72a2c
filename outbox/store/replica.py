"""Reads how a replica stands to its primary: the same data, and how far behind. Does not judge it."""

import time
from typing import Any, Final

from outbox.policy.replica import ReplicaFacts
from outbox.store.pool import Database, bounded_read, connect, fetch_rows, translated
from outbox.store.queries import queries

CATCH_UP_SECONDS: Final = 3.0  # a replica that is well replays what the primary has just written within this time
PAUSE_SECONDS: Final = 0.1


def read_replica(primary: Database, url: str, application: str) -> ReplicaFacts:
    """The primary first: what it has written by then is what the replica is measured by. Raises DatabaseDown."""
    asked = queries("examination")["place_in_wal"]
    with bounded_read(primary) as connection:
        ours = fetch_rows(connection, asked, {"reached": None})[0]
    ends = time.monotonic() + CATCH_UP_SECONDS
    with connect(url, application=application, may_be_standby=True) as replica, translated():
        while True:
            theirs: dict[str, Any] = dict(fetch_rows(replica, asked, {"reached": ours["place"]})[0])
            if theirs["has_reached"] or not theirs["standby"] or time.monotonic() >= ends:
                break
            time.sleep(PAUSE_SECONDS)
    return ReplicaFacts(
        same_system=theirs["system"] == ours["system"],
        same_database=theirs["database"] == ours["database"],
        same_server=theirs["started"] == ours["started"],
        standby=theirs["standby"],
        behind_seconds=0.0 if theirs["has_reached"] else theirs["behind_seconds"],
    )
