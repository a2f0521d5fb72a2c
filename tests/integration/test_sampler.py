"""The sampler on a real PostgreSQL: right when empty and in every state, never a Seq Scan, patient with outages."""

import json
from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest

from outbox import facts
from outbox.store.backlog import HEAD_ROWS, MOST_COUNTED, SETTINGS, PostgresBacklog, TookTooLong
from outbox.store.queries import queries
from outbox.store.schema.migrate import migrate
from outbox.telemetry.backlog import BacklogSampler

Connection = psycopg.Connection[Any]

NAMED = {
    "most": MOST_COUNTED,
    "head": HEAD_ROWS,
    "max_processing": "600 s",
    "entity_types": ["article", "author"],
    "most_types": None,
}


@pytest.fixture
def backlog(database: str) -> Iterator[PostgresBacklog]:
    reader = PostgresBacklog(database, max_processing_seconds=600)
    yield reader
    reader.close()


def insert(connection: Connection, count: int = 1, **columns: Any) -> None:
    """`count` rows; a value that is a tuple holds an SQL expression."""
    given = {"entity_type": "article", "op": "upsert", "payload": "{}", **columns}
    names = ", ".join(given)
    values = ", ".join(value[0] if isinstance(value, tuple) else "%s" for value in given.values())
    bound = [value for value in given.values() if not isinstance(value, tuple)]
    connection.execute(
        f"insert into search_outbox_events (entity_id, {names})"
        f" select n::text, {values} from generate_series(1, {count}) n",
        bound,
    )


def ago(interval: str) -> tuple[str]:
    return (f"now() - interval '{interval}'",)


def ahead(interval: str) -> tuple[str]:
    return (f"now() + interval '{interval}'",)


def lease(connection: Connection, until: str, count: int, entity_type: str = "article") -> None:
    """A batch in flight, as a claim writes it."""
    connection.execute(
        "with taken as (update search_outbox_events set status = 'processing',"
        f" lease_until = now() + interval '{until}',"
        " processing_started_at = now() where id in (select id from search_outbox_events where status = 'pending'"
        " and entity_type = %s order by seq limit %s) returning id)"
        " insert into search_outbox_leases (token, owner, start_id, lease_until, ids, counts, revision)"
        f" select gen_random_uuid(), 'w1', gen_random_uuid(), now() + interval '{until}', array_agg(id),"
        " jsonb_build_object(%s::text, count(*)), 1 from taken",
        [entity_type, count, entity_type],
    )


# What is seen


def test_only_open_rows_count(connection: Connection, backlog: PostgresBacklog) -> None:
    insert(connection, 4)
    insert(connection, 3, status="done", processed_at=ago("1 hour"))
    insert(connection, 2, status="discarded", processed_at=ago("1 hour"))
    insert(connection, 5, status="failed", failed_at=ago("1 hour"), error_reason="connect")
    insert(connection, 1, status="failed", failed_at=ago("1 hour"))
    counts = backlog.open_counts()
    assert (counts.lag, counts.due) == (4, 4)
    assert backlog.failed_by_reason() == {"connect": 5, "": 1}


STUCK = [
    ({"lease_until": ago("1 second"), "processing_started_at": ago("1 minute")}, 1, "the lease ran out"),
    ({"lease_until": ahead("1 minute"), "processing_started_at": ago("11 minutes")}, 1, "processing for too long"),
    ({"lease_until": ahead("1 minute"), "processing_started_at": ago("1 minute")}, 0, "at work"),
    ({"lease_until": ago("1 second"), "next_retry_at": ago("1 minute")}, 1, "set by hand on a retried row"),
    ({"lease_until": ago("1 second"), "abandoned_count": 1}, 1, "a suspect"),
]


@pytest.mark.parametrize(("columns", "stuck", "why"), STUCK, ids=[why for _, _, why in STUCK])
def test_the_stuck_count_is_the_guide_s(
    connection: Connection, backlog: PostgresBacklog, columns: dict[str, Any], stuck: int, why: str
) -> None:
    insert(connection, 1, status="processing", **columns)
    guide = connection.execute(
        "select count(*) from search_outbox_events where processed_at is null and status='processing'"
        " and ((lease_until is not null and lease_until < now()) or (processing_started_at is not null"
        " and now() - processing_started_at > interval '10 minutes'))"
    ).fetchone()
    assert (backlog.open_counts().stuck,) == guide == (stuck,)


@pytest.mark.parametrize("configured", [(), ("article",)], ids=["none configured", "one configured"])
def test_types_are_lanes_by_their_declaration_the_first_fifty(
    connection: psycopg.Connection, backlog: PostgresBacklog, configured: tuple[str, ...]
) -> None:
    connection.execute(
        "insert into search_outbox_entity_types (entity_type, kept_by, declared_by, declared_at)"
        " select 'type' || n, 'payload', 'test', now() + n * interval '1 second' from generate_series(1, 60) n"
    )
    insert(connection, 4, entity_type="type50", created_at=ago("10 minutes"))
    lease(connection, "1 minute", 1, "type50")
    insert(connection, 1, entity_type="type50", next_retry_at=ahead("1 hour"), created_at=ago("20 minutes"))
    insert(connection, 1, entity_type="type50", abandoned_count=1)
    insert(connection, 2, entity_type="type51", created_at=ago("30 minutes"))
    lanes = backlog.lanes(configured, backlog.open_counts())
    assert list(lanes) == [*configured, *(f"type{n}" for n in range(1, 51)), "other"]
    seen = {name: (lane.lag, lane.due) for name, lane in lanes.items() if lane.lag}
    assert seen == {"type50": (6, 4), "other": (2, 2)}
    assert round(lanes["type50"].oldest_age_seconds / 60) == 20
    assert round(lanes["other"].oldest_age_seconds / 60) == 30


# What it costs


def plan_of(connection: Connection, query: LiteralString) -> dict[str, Any]:
    with connection.transaction():
        for name, setting in SETTINGS.items():
            connection.execute("select set_config(%s, %s, true)", [name, setting])
        row = connection.execute("explain (analyze, buffers, format json) " + query, NAMED).fetchone()
    assert row is not None
    plan: dict[str, Any] = (row[0] if isinstance(row[0], list) else json.loads(row[0]))[0]["Plan"]
    return plan


def scans(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if node.get("Relation Name") == "search_outbox_events":
        yield node
    for child in node.get("Plans", []):
        yield from scans(child)


def test_done_rows_cost_the_sampler_nothing(database: str, connection: Connection) -> None:
    migrate(database, by_type=True)
    insert(connection, 100_000, status="done", processed_at=ago("1 hour"), payload=json.dumps({"t": "x" * 200}))
    insert(connection, 1_000)
    insert(connection, 100, next_retry_at=ahead("1 hour"))
    insert(connection, 100, abandoned_count=1)
    insert(connection, 100, status="failed", failed_at=ago("1 hour"), error_reason="connect")
    queried = ("sample_backlog", "sample_failed", "sample_lanes", "oldest_of_other_types", "open_by_type")
    for name in (*queried, "analyze", *queried):
        if name == "analyze":
            connection.execute("analyze search_outbox_events")
            continue
        plan = plan_of(connection, {**queries("inspection"), **queries("overview")}[name])
        used = list(scans(plan))
        assert used, name
        assert {node["Node Type"] for node in used} <= {"Index Scan", "Index Only Scan"}, name
        assert all(node["Index Name"].startswith("search_outbox_events_") for node in used), name
        pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        assert pages < 3_000, f"{name} read {pages} pages; the done rows alone are more than 6,000"


# The loop


class Heard:
    def __init__(self) -> None:
        self.facts: list[facts.Fact] = []

    def __call__(self, fact: facts.Fact) -> None:
        self.facts.append(fact)

    def of(self, kind: type[Any]) -> list[Any]:
        return [fact for fact in self.facts if isinstance(fact, kind)]


def test_a_sample_that_takes_too_long_is_missed_and_the_connection_stays(database: str, connection: Connection) -> None:
    reader = PostgresBacklog(database, time_limit_seconds=0.2)
    with psycopg.connect(database) as blocker:
        blocker.execute("lock table search_outbox_events in access exclusive mode")
        with pytest.raises(TookTooLong):
            reader.open_counts()
        heard = Heard()
        BacklogSampler(reader, heard).sample()
        assert len(heard.of(facts.SampleMissed)) == 1
        assert not heard.of(facts.DatabaseLost)
        blocker.rollback()
    assert reader.open_counts().lag == 0
    reader.close()
