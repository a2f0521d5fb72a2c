"""Every kind of bad input, put in by plain SQL, through a real projector to a real server beside good neighbours."""

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from elasticsearch import Elasticsearch
from psycopg.conninfo import conninfo_to_dict

from outbox.facts import Unclassified, Warned
from outbox.policy.inputs import EventFilter
from outbox.store.backlog import PostgresBacklog, PostgresOverview
from outbox.store.browsing import PostgresBrowsing
from outbox.store.schema.migrate import migrate
from tests.fixtures.elasticsearch import INDEX_SETTINGS
from tests.fixtures.failures import open_database
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.postgres import fresh_database
from tests.fixtures.proxy import proxy_to
from tests.fixtures.queue import EventTable, fresh_queue
from tests.fixtures.sinks import MemorySink, elastic_sink
from tests.fixtures.waiting import PATIENCE_SECONDS

MAPPING = {
    "number": {"type": "integer"},
    "long": {"type": "long"},
    "ratio": {"type": "float"},
    "day": {"type": "date"},
    "word": {"type": "keyword"},
    "inside": {"properties": {"x": {"type": "integer"}}},
    "kept": {"type": "object", "enabled": False},  # stored as it is, not searched
    "parts": {"type": "nested", "properties": {"x": {"type": "integer"}}},
}
REJECTED = "es_rejected_document"
REFUSED = "deterministic_exception"
INVALID, UNSUPPORTED = "OUTBOX_PAYLOAD_INVALID", "OUTBOX_PAYLOAD_UNSUPPORTED"
PRECONDITION, MISSING = "OUTBOX_PRECONDITION_FAILED", "OUTBOX_PAYLOAD_MISSING"


@dataclass
class Case:
    """`row`: columns beside a plain upsert. Either it is indexed, or it fails with a reason and a code, or PostgreSQL
    refuses it with an SQLSTATE. `says`: what the error must tell an operator."""

    name: str
    row: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None
    code: str = ""
    sqlstate: str = ""
    says: str = ""
    either: bool = False  # the server's version decides between indexed and `reason`


def doc(name: str, text: str, reason: str | None = None, says: str = "", *, either: bool = False) -> Case:
    return Case(name, {"payload": text}, reason, INVALID if reason else "", says=says, either=either)


def nested(depth: int) -> str:
    return f'{{"deep{depth}":' * depth + "1" + "}" * depth


CASES = [
    # numbers
    doc("a 20-digit integer as it was written", '{"kept": {"big": 12345678901234567890}, "exact": 9007199254740993}'),
    doc("a 20-digit integer in a field that nobody mapped", '{"unmapped_big": 12345678901234567890}', REJECTED),
    doc("a decimal that no float holds", '{"ratio": 0.1000000000000000055511151231257827, "d": 1.10}'),
    doc("1e400", '{"ratio": 1e400}', REJECTED, "ratio"),
    doc("an integer above 2^63 in a long", '{"long": 9223372036854775808}', REJECTED, "long"),
    doc("the word NaN in a number, as to_json writes it", '{"ratio": "NaN"}', REJECTED, "ratio"),
    Case("NaN as a literal", {"payload": '{"x": NaN}'}, sqlstate="22P02"),
    Case("Infinity as a literal", {"payload": '{"x": Infinity}'}, sqlstate="22P02"),
    # text
    doc("an escaped NUL", r'{"s": "a\u0000b"}'),
    doc("a lone surrogate", r'{"s": "\ud800"}', REJECTED, either=True),
    doc("line breaks and tabs between the signs", '{\n\t"a" :\r\n 1\n}'),
    doc("the lines of another bulk request as text", r'{"s": "}\n{\"delete\":{\"_index\":\"x\",\"_id\":\"1\"}}\n"}'),
    doc("a string of 5 MB", json.dumps({"s": "word " * 1_000_000})),
    # 10 MB meets a proxy's limit below. 99 and 101 MB, around Elasticsearch's own limit, are left out: they would take
    # half a gigabyte of memory each, and 413 is answered in the same way whatever the size.
    doc("a document of 8 MB", json.dumps({f"s{n}": "word " * 800_000 for n in range(2)})),
    doc("a keyword over 32,766 bytes", json.dumps({"word": "x" * 32_767}), REJECTED, "word"),
    doc("markup, colours and formulas", json.dumps({"s": "<script>\x1b[31m=cmd()\r\n"})),
    # shape
    doc("depth 20", nested(20)),
    doc("depth 21", nested(21), REJECTED, "depth"),
    doc("depth 10,000", nested(10_000), REJECTED),
    doc("10,000 nested objects", json.dumps({"parts": [{"x": 1}] * 10_000})),
    doc("10,001 nested objects", json.dumps({"parts": [{"x": 1}] * 10_001}), REJECTED, "nested"),
    doc("1,001 fields", json.dumps({f"f{n}": n for n in range(1_001)}), REJECTED, "fields"),
    doc("an empty field name", '{"": 1}', REJECTED),
    doc("two dots in a name", '{"a..b": 1}', REJECTED),
    doc("a name that is a value and an object", '{"q": 1, "q.b": 2}', REJECTED),
    doc("_id in the body", '{"_id": "x"}', REJECTED, "_id"),
    doc("the same key twice", '{"k": 1, "k": 2}', REJECTED),
    doc("an empty document", "{}"),
    # mapping
    doc("text in a number", '{"number": "many"}', REJECTED, "number"),
    doc("a value where an object is", '{"inside": 1}', REJECTED, "inside"),
    doc("an object where a word is", '{"word": {"x": 1}}', REJECTED, "word"),
    doc("a date that is none", '{"day": "n/a"}', REJECTED, "day"),
    doc("PostgreSQL's infinity", '{"day": "infinity"}', REJECTED, "day"),
    # not a document
    Case("an array", {"payload": "[1]"}, REFUSED, INVALID, says="not a JSON object"),
    Case("json null", {"payload": "null"}, REFUSED, INVALID, says="not a JSON object"),
    Case("no payload of a payload type", {"payload": None}, REFUSED, MISSING, says="`outbox types set TYPE view`"),
    Case(
        "no payload and no view",
        {"payload": None, "entity_type": "looked up"},
        REFUSED,
        MISSING,
        says="create search_documents",
    ),
    # ids
    Case("an id of 512 bytes with its type", {"entity_id": "\u00e9" * 252}),
    Case("an id of 513 bytes", {"entity_id": "x" * 505}, REFUSED, PRECONDITION, says="513 bytes"),
    Case("an empty id", {"entity_id": ""}, REFUSED, PRECONDITION, says="empty"),
    Case("a path as an id", {"entity_id": "../_all"}),
    Case("line break, quote and U+2028 in an id", {"entity_id": 'a\n"b\u2028'}),
    Case("markup and colours in an id", {"entity_id": "<script>\x1b[31m=cmd()"}),
    Case("a NUL in an id", {"entity_id": "a\x00b"}, sqlstate="22"),
    # types: none of these ever names an index
    *[
        Case(f"the type {kind[:12]}", {"entity_type": kind})
        for kind in ("<logs-{now/d}>", "a,b", "*", ".security", "-x", "UPPER", "t" * 300)
    ],
    Case("an empty type", {"entity_type": ""}),
    Case("a colon in the type", {"entity_type": "a:b"}, REFUSED, PRECONDITION, says="':'"),
    # op
    Case(
        "the guide's op",
        {"op": "not-a-real-op"},
        REFUSED,
        UNSUPPORTED,
        says="ValueError: Unknown outbox op: 'not-a-real-op'",
    ),
    Case("op with a blank", {"op": "upsert "}, REFUSED, UNSUPPORTED, says="'upsert '"),
    Case("op null", {"op": None}, sqlstate="23502"),
    # version
    Case("version -1", {"event_version": -1}, REFUSED, PRECONDITION, says="below 0"),
    Case("version 0", {"event_version": 0}),
    Case("version 2^63 - 1", {"event_version": 2**63 - 1}),
    Case("version 2^63", {"event_version": 2**63}, sqlstate="22003"),
    Case("version null", {"event_version": None}, sqlstate="23502"),
    # routing and times
    Case("a routing of 600 bytes", {"routing": "r" * 600}),
    Case("a routing with a comma and a line break", {"routing": "a,b\n"}),
    Case("created in 1970", {"created_at": "1970-01-01"}),
    Case("created in 9999", {"created_at": "9999-01-01"}),
    Case("a traceparent that is none", {"traceparent": "\u2028 nonsense"}),
]


@dataclass
class Bench:
    queue: EventTable
    worker: InProcess
    url: str
    index: str

    def source(self, row: Any) -> str | None:
        """The document as Elasticsearch keeps it, byte for byte."""
        name = urllib.parse.quote(f"{row.entity_type}:{row.entity_id}", safe="")
        routing = f"?routing={urllib.parse.quote(row.routing, safe='')}" if row.routing else ""
        try:
            with urllib.request.urlopen(
                f"{self.url}/{self.index}/_source/{name}{routing}", timeout=PATIENCE_SECONDS
            ) as reply:
                return str(reply.read().decode())
        except urllib.error.HTTPError as answer:
            return None if answer.code == 404 else f"{answer.code}"


@pytest.fixture(scope="module")
def stage(postgres_url: str, migrated_template: str, es: Elasticsearch) -> Iterator[tuple[EventTable, str]]:
    """One database and one index for all: what each case writes is its own."""
    name = f"test-{uuid4().hex[:16]}"
    es.indices.create(index=name, settings=INDEX_SETTINGS, mappings={"properties": MAPPING})
    with fresh_queue(postgres_url, migrated_template) as queue:
        yield queue, name
    es.indices.delete(index=name)


@pytest.fixture
def bench(stage: tuple[EventTable, str], elastic_url: str) -> Iterator[Bench]:
    queue, index = stage
    with elastic_sink(elastic_url) as sink:
        worker = InProcess(Parts(queue.store(), sink, index_of=lambda _: index))
        yield Bench(queue, worker, elastic_url, index)
    queue.connection.execute("truncate search_outbox_events, search_outbox_leases, search_outbox_attempts")
    assert not worker.of(Unclassified), "every answer here is in the table of failures"
    assert not worker.of(Warned), "no lane fell over"


def produce(bench: Bench, case: Case) -> UUID:
    row = {"entity_id": uuid4().hex, "op": "upsert", "payload": '{"title": "x"}', **case.row}
    return bench.queue.produce(row.pop("entity_id"), row.pop("op"), **row)


def neighbours(bench: Bench) -> list[UUID]:
    return [bench.queue.produce() for _ in range(2)]


def judged(bench: Bench, case: Case, id: UUID) -> None:
    row = bench.queue.row(id)
    if case.reason is None or (case.either and row.status == "done"):
        assert (row.status, row.error) == ("done", None)
        if row.op == "upsert":
            text = bench.queue.value("select payload::text from search_outbox_events where id = %s", id)
            assert bench.source(row) == text.replace("\n", " ").replace("\r", " ")
        return
    assert (row.status, row.error_reason, row.error_code) == ("failed", case.reason, case.code)
    assert (row.next_retry_at, row.dead_reason) == (None, "non_retryable")
    assert case.says in row.error
    assert len(row.error.encode()) <= 2048
    assert row.error_fingerprint
    assert bench.source(row) is None


def test_each_ends_in_exactly_its_class_and_its_neighbours_are_done(bench: Bench) -> None:
    """All in one batch: one request, every fault in it, and each gets its own verdict."""
    left = neighbours(bench)
    rows = []
    for case in CASES:
        if not case.sqlstate:
            rows.append((case, produce(bench, case)))
            continue
        with pytest.raises(psycopg.Error) as refused:
            produce(bench, case)
        assert (refused.value.sqlstate or "22").startswith(case.sqlstate), case.name
    right = neighbours(bench)
    bench.worker.run()
    while bench.queue.counts().get("pending"):  # a busy master takes new fields into the mapping too late
        bench.queue.make_due()
        bench.worker.run()
    assert {bench.queue.row(good).status for good in left + right} == {"done"}
    wrong = []
    for case, id in rows:
        try:
            judged(bench, case, id)
        except AssertionError as error:
            wrong.append(f"{case.name}: {error}"[:500])
    assert wrong == []


def test_bytes_that_are_no_utf8_never_get_in(bench: Bench) -> None:
    insert = "insert into search_outbox_events (entity_type, entity_id, op, payload) values ('a', 'b', 'upsert', %s)"
    with pytest.raises(psycopg.errors.CharacterNotInRepertoire):
        bench.queue.connection.execute(
            insert.replace("%s", "convert_from(%s, 'UTF8')::json").encode(), [b'{"s": "\xff"}']
        )


def test_a_thousand_documents_with_three_bad_ones_997_are_done(bench: Bench) -> None:
    """Refused by the mapping, a 513-byte id by plain SQL, one over the size limit."""
    bench.queue.produce_many(997)
    refused = bench.queue.produce("refused", payload='{"number": "many"}')
    long_id = bench.queue.produce("x" * 505)
    large = bench.queue.produce("large", payload=json.dumps({"s": "y" * 10_000_000}))
    with proxy_to(bench.url) as (proxy, url), elastic_sink(url) as sink:
        proxy.refuse_bodies_over(9_000_000)
        bench.worker.projector.sink = sink
        bench.worker.run(1_000)
    assert bench.queue.counts() == {"done": 997, "failed": 3}
    found = {id: (bench.queue.row(id).error_reason, bench.queue.row(id).error_code) for id in (refused, long_id, large)}
    assert found == {refused: (REJECTED, INVALID), long_id: (REFUSED, PRECONDITION), large: ("too_large", INVALID)}


@pytest.mark.parametrize("due", ["9999-01-01", "294276-12-31", "infinity"])
def test_a_row_that_is_due_in_a_far_future_waits_in_nobodys_way(bench: Bench, due: str) -> None:
    id = bench.queue.produce(next_retry_at=due)
    good = neighbours(bench)
    bench.worker.run()
    assert {bench.queue.row(each).status for each in good} == {"done"}
    asked = "select status || ' ' || attempts from search_outbox_events where id = %s"
    assert bench.queue.value(asked, id) == "pending 0"
    bench.queue.connection.execute("update search_outbox_events set next_retry_at = null where id = %s", [id])
    bench.worker.run()
    assert bench.queue.value(asked, id) == "done 1"


CREATED = ("infinity", "-infinity", "294276-12-31", "0044-03-15 BC")


def all_done(queue: EventTable, worker: InProcess) -> None:
    for when in CREATED:
        queue.produce(created_at=when)
        samples(queue)
    queue.produce()
    worker.run()
    assert queue.counts() == {"done": len(CREATED) + 1}


def samples(queue: EventTable) -> None:
    """What the metrics, the status and the console ask of the open rows; an age is a number that can be shown."""
    with open_database(queue.url, size=1) as database:
        look = PostgresBacklog(database)
        counts = look.open_counts()
        lanes = look.lanes(["another"], counts)
        rows = PostgresOverview(database).open_by_type()
    ages = [counts.oldest_age_seconds, *[row["oldest_age_seconds"] for row in rows]]
    ages += [lane.oldest_age_seconds for lane in lanes.values()]
    assert all(0 <= age < 1e10 for age in ages), ages


def test_a_time_that_python_does_not_know_stops_no_claim(bench: Bench) -> None:
    all_done(bench.queue, bench.worker)


@pytest.mark.parametrize(("when", "year"), [*zip(CREATED, (9999, 1, 9999, 1), strict=True)])
def test_such_a_time_is_shown_as_the_nearest_that_python_knows(queue: EventTable, when: str, year: int) -> None:
    """One such row was enough to fail every list that it stood in."""
    id = queue.produce(created_at=when, next_retry_at=when)
    browsing = PostgresBrowsing(queue.pool())
    shown = browsing.event(id)
    assert shown is not None
    assert (shown["created_at"].year, shown["next_retry_at"].year) == (year, year)
    page = browsing.page("list_open", EventFilter(), limit=10, statuses=["pending"], before_seq=2**62)
    assert len(page) == 1


def test_neither_does_one_that_an_older_server_cannot_calculate_with(older_postgres_url: str) -> None:
    """Before 17 now() - infinity is an error: it was one of the whole claim, for every worker and for ever."""
    with fresh_database(older_postgres_url) as url:
        migrate(url)
        with fresh_queue(older_postgres_url, str(conninfo_to_dict(url)["dbname"])) as queue:
            all_done(queue, InProcess(Parts(queue.store(), MemorySink())))


def test_no_value_of_a_document_is_stored_or_reported_with_its_error(bench: Bench) -> None:
    """Elasticsearch quotes values: "Preview of field's value: '...'"."""
    secret = "s3cr3t-value"
    for text in ({"number": secret}, {"day": secret}, {"word": {"x": secret}}, {"ratio": [secret]}):
        bench.queue.produce(payload=json.dumps(text))
    bench.worker.run()
    rows = bench.queue.rows("status = 'failed'")
    assert len(rows) == 4
    stored = json.dumps([[row.error, row.error_detail] for row in rows])
    attempts = bench.queue.connection.execute("select error, detail::text from search_outbox_attempts").fetchall()
    assert secret not in stored + repr(attempts) + repr(
        [fact for fact in bench.worker.facts if not hasattr(fact, "event")]
    )
