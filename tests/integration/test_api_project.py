"""`POST events`: one entity projected again, over a real view, real events and a real index."""

import psycopg
import pytest
from elasticsearch import Elasticsearch

from outbox.store.schema.migrate import migrate
from tests.fixtures.console import ACT, Served, post
from tests.fixtures.failures import audit_counts

ENTITY = {**ACT, "entity_type": "article", "entity_id": "7"}


@pytest.fixture
def view(connection: psycopg.Connection) -> None:
    connection.execute("create table articles (id text primary key, title text)")
    connection.execute(
        "create view search_documents as select 'article' as entity_type, id as entity_id,"
        " json_build_object('title', title) as document from articles"
    )


def written(connection: psycopg.Connection) -> tuple[object, ...] | None:
    return connection.execute(
        "select op, event_version, payload::text, status from search_outbox_events order by seq desc limit 1"
    ).fetchone()


@pytest.mark.usefixtures("view")
def test_an_entity_of_the_view_is_looked_up_again_also_where_elasticsearch_is_ahead(
    console: Served, connection: psycopg.Connection, es: Elasticsearch, index: str
) -> None:
    connection.execute("insert into articles values ('7', 'x')")
    answer = post(console.client, "/events", ENTITY)
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/api/v1/events/{answer.json()['id']}"
    assert answer.json()["op"] == "refresh"
    assert written(connection) == ("refresh", answer.json()["event_version"], None, "pending")
    assert audit_counts(connection) == {"EVENT_REQUESTED": 1}
    # The lookup meets that version, and moves the sequence above it.
    es.index(index=index, id="article:7", document={}, version=99, version_type="external_gte")
    answer = post(console.client, "/events", ENTITY)
    assert written(connection) == ("refresh", answer.json()["event_version"], None, "pending")


def done(connection: psycopg.Connection, version: int, payload: str | None, entity_type: str = "article") -> None:
    connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op, event_version, payload, status, processed_at)"
        " values (%s, '7', 'upsert', %s, %s, 'done', now())",
        [entity_type, version, payload],
    )


def test_a_query_that_takes_too_long_is_a_503_that_names_the_index(
    console: Served, connection: psycopg.Connection, database: str
) -> None:
    with psycopg.connect(database) as holder:
        holder.execute("lock table search_outbox_events in access exclusive mode")
        answer = post(console.client, "/events", ENTITY)
    assert answer.status_code == 503
    assert "migrate --by-entity" in answer.json()["detail"]
    assert written(connection) is None


def test_what_only_elasticsearch_knows_is_never_deleted(
    console: Served, connection: psycopg.Connection, es: Elasticsearch, index: str
) -> None:
    es.index(index=index, id="article:7", document={}, version=99, version_type="external_gte")
    answer = post(console.client, "/events", ENTITY)
    assert answer.status_code == 409
    assert "never deleted" in answer.json()["detail"]
    assert written(connection) is None


@pytest.mark.parametrize("by_entity", [False, True], ids=["its newest event is searched", "found by its index"])
def test_a_document_that_travels_in_events_is_sent_again(
    console: Served, connection: psycopg.Connection, database: str, by_entity: bool
) -> None:
    migrate(database, by_entity=by_entity)
    done(connection, 2, '{"n": 1}')
    done(connection, 3, '{"n": 1.10}')
    assert post(console.client, "/events", ENTITY).status_code == 202
    assert written(connection) == ("upsert", 3, '{"n": 1.10}', "pending")
