"""What the doctor finds, each fault made for real."""

import re
from urllib.parse import urlsplit

import psycopg
from elasticsearch import Elasticsearch
from psycopg import sql

from outbox.ports import Finding, Level
from tests.fixtures.desks import Examine
from tests.fixtures.queue import EventTable
from tests.fixtures.roles import Roles

VIEW = (
    "create table articles (id bigint primary key, title text);"
    " insert into articles select g, 'title' from generate_series(1, 5000) g; analyze articles;"
)


def bad(found: dict[str, list[Finding]]) -> dict[str, str]:
    return {f.name: f.detail for findings in found.values() for f in findings if f.level is Level.BAD}


def the(found: dict[str, list[Finding]], name: str) -> Finding:
    (finding,) = found[name]
    return finding


def test_a_sound_installation_has_no_problem(examine: Examine, queue: EventTable) -> None:
    found = examine()
    assert bad(found) == {}
    for name in ("database", "clock", "server_speed", "schema", "slow_indexes", "privileges", "elasticsearch"):
        assert name in found
    assert the(found, "clock").level is Level.OK


def test_a_role_without_rights_is_reported_with_what_is_missing(
    examine: Examine, database: str, connection: psycopg.Connection
) -> None:
    name, server = connection.info.dbname, urlsplit(database)
    try:
        connection.execute(sql.SQL("create role {} login password 'x'").format(sql.Identifier(name)))
        connection.execute(sql.SQL("grant select on all tables in schema public to {}").format(sql.Identifier(name)))
        finding = the(examine(f"postgresql://{name}:x@{server.hostname}:{server.port}/{name}"), "privileges")
    finally:
        connection.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
        connection.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))
    assert finding.level is Level.WARN  # it could be a person's
    assert "UPDATE on search_outbox_events" in finding.detail


def test_whoever_may_create_functions_beside_the_tables_is_bad_until_the_remedy_is_run(
    examine: Examine, connection: psycopg.Connection
) -> None:
    """As in every database that began before PostgreSQL 15; but only where there is somebody to use it."""
    stranger = sql.Identifier(f"{connection.info.dbname}_stranger")
    other = sql.Identifier(f"{connection.info.dbname}_other")
    assert the(examine(), "schema_rights").level is Level.OK
    try:
        connection.execute(sql.SQL("create role {} login; create role {} nologin").format(stranger, other))
        connection.execute(sql.SQL("grant create on schema public to {}").format(other))
        assert the(examine(), "schema_rights").level is Level.OK, "nobody can log in with that right"
        connection.execute(sql.SQL("grant {} to {}").format(other, stranger))
        finding = the(examine(), "schema_rights")
        assert (finding.level, finding.detail.rpartition(" ")[2]) == (Level.BAD, f"{connection.info.dbname}_stranger")
        connection.execute(sql.SQL("revoke {} from {}").format(other, stranger))
        connection.execute("grant create on schema public to public")
        assert the(examine(), "schema_rights").level is Level.BAD
        connection.execute(re.findall("`(revoke .*?)`", the(examine(), "schema_rights").remedy)[0].encode())
        assert the(examine(), "schema_rights").level is Level.OK
    finally:
        for role in (stranger, other):
            connection.execute(sql.SQL("drop owned by {}").format(role))
            connection.execute(sql.SQL("drop role {}").format(role))


def test_a_view_that_the_projectors_login_may_not_read_comes_with_the_grant(
    examine: Examine, connection: psycopg.Connection, roles: Roles
) -> None:
    """The owner may read it, so his own lookups prove nothing: the projector would pause at its first event."""
    connection.execute(
        VIEW + "create view search_documents as select 'article'::text as entity_type, id as entity_id,"
        " json_build_object('title', title) as document from articles"
    )
    role = roles.name("projector")
    finding = the(examine(), "readable")
    assert (finding.level, finding.remedy) == (Level.WARN, f"grant select on search_documents to {role}")
    connection.execute(sql.SQL("alter role {} nologin").format(sql.Identifier(role)))
    assert "readable" not in examine(), "nobody logs in by that role"
    connection.execute(sql.SQL("alter role {} login").format(sql.Identifier(role)))
    connection.execute(finding.remedy.encode())
    assert "readable" not in examine()


def test_a_materialised_view_of_documents_is_bad_and_one_behind_the_view_is_named(
    examine: Examine, connection: psycopg.Connection
) -> None:
    columns = "'a'::text as entity_type, id as entity_id, to_json(t) as document from"
    connection.execute("create table t (id int primary key); create materialized view behind as select * from t")
    connection.execute("create view between as select * from behind")
    connection.execute(f"create materialized view search_documents as select {columns} t".encode())
    found = examine()
    assert "search_documents is a materialised view" in bad(found)["documents"]
    assert "ordinary view" in the(found, "documents").remedy
    connection.execute("drop materialized view search_documents")
    connection.execute(f"create view search_documents as select {columns} between as t".encode())
    finding = the(examine(), "documents")
    assert finding.level is Level.WARN
    assert "search_documents reads public.behind (materialised)" in finding.detail
    assert "outbox repair" in finding.remedy


def test_a_sequence_that_was_moved_is_reported_with_what_to_do(examine: Examine, queue: EventTable) -> None:
    assert the(examine(), "sequence").level is Level.OK
    queue.store().raise_version(5_000)
    found = the(examine(), "sequence")
    assert found.level is Level.WARN
    assert "to 5000 at " in found.detail
    assert "OutboxIndexAhead" in found.remedy


def test_a_lookup_that_no_index_serves_is_found_by_its_plan(examine: Examine, connection: psycopg.Connection) -> None:
    connection.execute(VIEW)
    columns = "to_json(a) as document from articles a"
    connection.execute(
        f"create view search_documents as select 'article'::text as entity_type, id as entity_id, {columns}".encode()
    )
    assert the(examine(), "lookup").level is Level.OK
    connection.execute("drop view search_documents")
    cast = f"select 'article'::text as entity_type, id::text as entity_id, {columns}"
    connection.execute(f"create view search_documents as {cast}".encode())
    finding = the(examine(), "lookup")
    assert finding.level is Level.WARN
    assert "articles (about 5000 rows)" in finding.detail


def test_events_of_one_entity_that_share_a_version_are_found(examine: Examine, queue: EventTable) -> None:
    queue.produce("e1", event_version=5)
    queue.produce("e1", event_version=5)
    finding = the(examine(), "versions")
    assert finding.level is Level.WARN
    assert "article:e1 at 5" in finding.detail


def test_a_document_ahead_of_every_event_is_found(
    examine: Examine, queue: EventTable, es: Elasticsearch, index: str
) -> None:
    queue.produce("e1", event_version=1)
    queue.produce("e2", event_version=2)
    queue.connection.execute("update search_outbox_events set status = 'done'")
    es.index(index=index, id="article:e1", document={}, version=1_000_000, version_type="external")
    es.index(index=index, id="article:e2", document={}, version=2, version_type="external")
    finding = the(examine(), "ahead")
    assert finding.level is Level.BAD
    assert "article:e1 at 1000000" in finding.detail
    assert "e2" not in finding.detail


def test_failures_pauses_and_missing_workers_are_said(examine: Examine, queue: EventTable) -> None:
    queue.connection.execute(
        "insert into search_outbox_controls (scope, paused_by, reason) values ('*', 'alice', 'tea')"
    )
    id = queue.produce()
    queue.produce()
    queue.connection.execute(
        "update search_outbox_events set status = 'failed', error_reason = 'es_5xx' where id = %s", [id]
    )
    found = examine()
    assert "no projector runs" in bad(found)["workers"]
    assert "1 es_5xx" in the(found, "failed").detail
    assert "paused by alice: tea" in the(found, "paused").detail
