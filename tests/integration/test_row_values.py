"""No value from a row becomes SQL text or the name of an index: hostile rows through a whole daemon and the commands,
and every statement that was sent for them read."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import orjson
import psycopg
import pytest
from elasticsearch import Elasticsearch
from psycopg.sql import Composable

from outbox.daemon.lane import Lane
from tests.fixtures.commands import Outbox
from tests.fixtures.queue import EventTable
from tests.fixtures.wired import Wire

MARK = f"zq{uuid4().hex[:12]}"  # stands in every value: wherever it turns up, a value did
HOSTILE = {
    "quotes": f"{MARK}'; drop table search_outbox_events; --",
    "double quotes": f'{MARK}"; drop table search_outbox_events; --',
    "a dollar quote": f"{MARK}$$; drop table search_outbox_events; $$",
    "a backslash": f"{MARK}\\'; drop table search_outbox_events; --",
    "placeholders": f"{MARK} %s %(id)s %% $1",
    "braces": f"{MARK} {{}} {{0}} {{view}} {{entity_id_type}}",
    "an index": f"{MARK}-index",
    "a path": f"../{MARK}/_doc/1",
    "several indexes": f"{MARK}-a,{MARK}-b,-*",
    "an action": f'{MARK}"}}}}\n{{"index":{{"_index":"{MARK}","_id":"1"}}}}\n{{}}',
    "a comment": f"{MARK} /* and filter */ --",
}
TYPES = [text for text in HOSTILE.values() if ":" not in text]  # which none may have
UNKNOWN_OPS = {prefix + text for text in HOSTILE.values() for prefix in ("", "all ")}
COLUMNS = ("entity_type", "entity_id", "op", "routing", "idempotency_key", "traceparent")


def produce(queue: EventTable) -> None:
    """Each value in each column, and in all at once; also as a delete, as a refresh and inside a payload."""
    for text in HOSTILE.values():
        for column in COLUMNS:
            queue.produce(**{column: text})
        queue.produce(**dict.fromkeys(COLUMNS, f"all {text}"))
        queue.produce(f"some {text}", entity_type=text, routing=text)
        queue.produce(text, op="delete", entity_type=text)
        queue.produce(text, op="refresh", entity_type=f"view {text}")
        queue.produce(payload=orjson.dumps({"_index": text, text: 1}).decode())


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The text of every statement of this process, as psycopg sends it."""
    texts: list[str] = []
    execute = psycopg.Cursor.execute

    def kept(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        whole = query.as_string(self) if isinstance(query, Composable) else query
        texts.append(whole.decode() if isinstance(whole, bytes) else whole)
        return execute(self, query, *args, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", kept)
    return texts


def commands(queue: EventTable) -> Iterator[tuple[str, ...]]:
    """What people do with such rows, by the values that the rows have."""
    yield "attach", "--ignore", "search_outbox_events", "--reason", "the view reads the events themselves"
    yield from (("status",), ("stats",), ("list", "-s", "all"), ("doctor",))
    for text in TYPES:
        yield "list", "-s", "all", "--entity-type", text, "--entity-id", text
        yield "replay", "--entity-type", f"all {text}", "--by", "alice", "--reason", "mapping fixed", "--yes"
        yield "refresh", "--type", f"view {text}", "--id", text, "--by", "alice", "--yes"
    yield from (("show", str(row.id)) for row in queue.rows("status = 'failed'")[:20])
    yield from (("audit", "list"), ("audit", "verify"))


def run(lane: Lane, queue: EventTable) -> None:
    while queue.counts().get("pending"):
        lane.step()
        queue.make_due()


def test_hostile_values_reach_no_statement_and_make_no_index(
    wire: Wire, queue: EventTable, es: Elasticsearch, index: str, sent: list[str], outbox_here: Outbox
) -> None:
    queue.connection.execute(
        "create view search_documents as"
        " select entity_type, entity_id, json_build_object('id', entity_id) as document, routing"
        "   from search_outbox_events where op = 'refresh'"
    )
    produce(queue)
    sent.clear()
    lane = wire().lanes[0]
    run(lane, queue)
    assert [args for args in commands(queue) if outbox_here(*args).code != 0] == []
    run(lane, queue)
    assert len(sent) > 100
    assert [text for text in sent if MARK in text] == []
    assert {name for name in es.indices.get(index="*", expand_wildcards="all") if MARK in name} == set()
    es.indices.refresh(index=index)
    found = es.search(index=index, size=1000)["hits"]["hits"]
    assert {hit["_index"] for hit in found} == {index}
    named = {hit["_id"] for hit in found}
    assert {f"article:{text}" for text in HOSTILE.values()} <= named
    assert {id for text in TYPES for id in (f"{text}:some {text}", f"view {text}:{text}")} <= named
    assert {row.op for row in queue.rows("status = 'failed' and op like %(mark)s", mark=f"%{MARK}%")} == UNKNOWN_OPS
