"""Databases that are not UTF-8: documents arrive as UTF-8 all the same, and one without an encoding is refused."""

import json
from collections.abc import Iterator

import pytest

from outbox.errors import NoEncoding
from outbox.policy.document import BATCH_BYTES
from outbox.policy.outcome import DeadReason, Failure, Reason
from outbox.policy.settle import Failed
from outbox.store.documents import ViewDocuments
from outbox.store.pool import connect
from outbox.store.schema.migrate import migrate
from outbox.store.schema.state import check_schema
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.postgres import fresh_database
from tests.fixtures.queue import EventTable, queue_of
from tests.fixtures.sinks import MemorySink

WORD = {"LATIN1": "Größe", "EUC_JP": "検索"}
VIEW = """
create table article (id text primary key, title text not null);
create view search_documents as
    select 'article'::text as entity_type, id as entity_id, json_build_object('title', title) as document from article
"""


@pytest.fixture(scope="module", params=WORD)
def encoded_database(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[str]:
    with fresh_database(postgres_url, encoding=request.param) as url:
        migrate(url)
        with connect(url) as connection:
            connection.execute(VIEW)
        yield url


@pytest.fixture
def encoded(encoded_database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventTable]:
    """An empty queue in a database of this encoding, of which the environment says it too."""
    with queue_of(encoded_database) as queue:
        queue.connection.execute("set client_encoding = 'UTF8'")
        queue.connection.execute("truncate search_outbox_events, article")
        monkeypatch.setenv("PGCLIENTENCODING", str(queue.value("show server_encoding")))
        yield queue


def test_documents_leave_a_database_of_another_encoding_as_utf_8(encoded: EventTable) -> None:
    word = next(word for name, word in WORD.items() if name == encoded.value("show server_encoding"))
    body = json.dumps({"title": word}, ensure_ascii=False)
    large = json.dumps({"title": word * 20_000}, ensure_ascii=False)
    encoded.produce(word, entity_type="note", payload=body)
    encoded.produce("large", entity_type="note", payload=large)
    encoded.connection.execute("insert into article values ('looked up', %s)", [word])
    encoded.produce("looked up", "refresh")
    sink = MemorySink()
    documents = ViewDocuments(encoded.pool(), "search_documents", batch_bytes=BATCH_BYTES)
    InProcess(Parts(encoded.store(), sink, documents=documents)).run()
    assert encoded.counts() == {"done": 3}
    sent = {id.partition(":")[2]: json.loads(body.decode()) for (_, id), (_, body) in sink.documents.items()}
    expected = {word: word, "large": word * 20_000, "looked up": word}
    assert sent == {name: {"title": title} for name, title in expected.items()}


def test_a_verdict_that_quotes_what_the_database_cannot_hold_is_still_recorded(encoded: EventTable) -> None:
    """The payload had it as an escape, which is ASCII; Elasticsearch's error has the character."""
    id = encoded.produce()
    claimed = encoded.claim()
    failure = Failure(Reason.ES_REJECTED_DOCUMENT, "bad '\U0001f600'", detail={"error": "ไทย"}, fingerprint="f")
    settled = encoded.store().settle(claimed.token, [(id, Failed(failure, DeadReason.NON_RETRYABLE))])
    assert (settled.kept, list(settled.lost)) == (1, [])
    assert encoded.row(id).error == r"bad '\u1f600'"


def test_a_database_without_an_encoding_is_refused_by_name(postgres_url: str) -> None:
    with fresh_database(postgres_url, encoding="SQL_ASCII") as url:
        with pytest.raises(NoEncoding, match="SQL_ASCII"):
            migrate(url)
        with connect(url) as connection:
            assert connection.execute("select to_regclass('search_outbox_migrations')").fetchone() == (None,)
            with pytest.raises(NoEncoding, match="SQL_ASCII"):
                check_schema(connection)
