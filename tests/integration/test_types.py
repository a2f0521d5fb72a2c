"""`outbox types`: a change brings the documents over, and may be killed anywhere."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from elasticsearch import Elasticsearch

from outbox.app.entity_types import IndexedDocuments
from outbox.ops.entity_types import HasDocuments, TypesDesk
from outbox.policy.audit import Actor, Source
from outbox.policy.entity_type import BY_VIEW, EntityType, KeptBy
from outbox.reindex.backfill import RebuildUnderWay
from outbox.reindex.scan import ElasticScan
from outbox.store.acts import PostgresEventWriter
from outbox.store.entity_types import PostgresEntityTypes
from outbox.store.schema import declaring
from tests.fixtures.queue import EventTable
from tests.fixtures.world import World

ALICE = Actor("alice", Source.CLI)
BY_PAYLOAD = EntityType(KeptBy.PAYLOAD)


class Killed(BaseException):
    """kill -9."""


class Mortal:
    """The same object, whose n-th call ends the process."""

    def __init__(self, real: Any, fuse: list[int]) -> None:
        self._real, self._fuse = real, fuse

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self._fuse[0] -= 1
            if self._fuse[0] == 0:
                raise Killed
            return found(*args, **kwargs)

        return call


class Moving(World):
    """Articles were made by payloads; the view has other titles, one article more and two less."""

    def types(self, fuse: list[int] | None = None) -> TypesDesk:
        store: Any = PostgresEntityTypes(self.queue.pool())
        documents: Any = IndexedDocuments(
            self.reindexing(), ElasticScan(self.elastic), self.settings.naming, PostgresEventWriter(self.queue.pool())
        )
        if fuse is not None:
            store, documents = Mortal(store, fuse), Mortal(documents, fuse)
        return TypesDesk(
            store, documents.any_of, documents.check, documents.bring_over, has_records=False, rest=lambda _: None
        )

    def set(self, about: EntityType, fuse: list[int] | None = None) -> EntityType | None:
        return self.types(fuse).set("article", about, ALICE, "why", lambda _: None)

    def declared(self) -> EntityType | None:
        return PostgresEntityTypes(self.queue.pool()).read()[1].get("article")

    def titles(self) -> dict[str, str]:
        self.es.indices.refresh(index=self.index)
        hits = self.es.search(index=self.index, size=1000)["hits"]["hits"]
        return {hit["_id"]: hit["_source"]["title"] for hit in hits}


@pytest.fixture
def moving(queue: EventTable, es: Elasticsearch, elastic_url: str, index: str) -> Moving:
    world = Moving(queue, es, elastic_url, index)
    PostgresEntityTypes(queue.pool()).declare({"article": BY_PAYLOAD}, "test")
    for n in range(10):
        queue.produce(str(n), payload='{"title": "told", "n": 1}')
    world.project()
    world.connection.execute(
        "insert into articles (id, title, n) select g::text, 'true', g from generate_series(2, 10) g"
    )
    return world


WANTED = {f"article:{n}": "true" for n in range(2, 11)}


def test_a_type_moves_from_payloads_to_the_view_with_its_documents(moving: Moving) -> None:
    assert moving.set(BY_VIEW) == BY_PAYLOAD
    moving.project()
    assert moving.titles() == WANTED
    assert moving.declared() == BY_VIEW
    acts = "select count(*) from search_outbox_audit where action = 'ENTITY_TYPE_DECLARED'"
    assert moving.queue.value(acts) == 2


@pytest.mark.parametrize("step", [1, 3, 5])
def test_killed_at_any_step_the_same_command_goes_on(moving: Moving, step: int) -> None:
    with suppress(Killed):
        moving.set(BY_VIEW, [step])
    moving.set(BY_VIEW)
    moving.project()
    assert moving.titles() == WANTED
    assert moving.declared() == BY_VIEW


def test_a_batch_from_before_is_waited_for(moving: Moving) -> None:
    """Its request may still be on its way when the index is filled from the view."""
    moving.queue.produce("0", payload='{"title": "late", "n": 1}')
    claimed = moving.worker.claim()
    said: list[str] = []
    desk = moving.types()
    rest: Callable[[float], object] = lambda _: moving.worker.projector.project(claimed, 0)  # noqa: E731
    replace(desk, rest=rest).set("article", BY_VIEW, ALICE, "why", said.append)
    moving.project()
    assert said == ["waiting for 1 batches from before"]
    assert moving.titles() == WANTED
    assert moving.queue.counts()["failed"] == 1, "it carries a payload, and its type is kept by the view now"


def test_a_type_does_not_move_while_a_rebuild_is_not_over(moving: Moving) -> None:
    moving.connection.execute(
        "insert into search_outbox_rebuilds (target, old_index, new_index, mapping, options, started_by, reason)"
        " values (%s, 'a-v1', 'a-v2', '{}', '{}', 'alice', 'why')",
        [moving.index],
    )
    with pytest.raises(RebuildUnderWay):
        moving.set(BY_VIEW)
    assert moving.declared() == BY_PAYLOAD, "its producers go on"


def test_from_the_view_to_payloads_only_without_documents(moving: Moving) -> None:
    moving.set(BY_VIEW)
    moving.project()
    with pytest.raises(HasDocuments):
        moving.set(BY_PAYLOAD)
    assert moving.declared() == BY_VIEW
    moving.es.indices.refresh(index=moving.index)
    moving.es.delete_by_query(index=moving.index, query={"match_all": {}}, refresh=True)
    moving.set(BY_PAYLOAD)
    assert moving.declared() == BY_PAYLOAD


def test_types_that_are_there_are_declared_and_what_is_ambiguous_is_named(moving: Moving) -> None:
    moving.connection.execute("delete from search_outbox_entity_types")
    moving.queue.produce("n", entity_type="note")
    found = declaring.declare_found(moving.connection, "search_documents")
    assert (found.mixed, list(found.clear)) == (["article"], ["note"])
    with pytest.raises(declaring.Ambiguous):
        declaring.finish(moving.connection, "search_documents")
    moving.set(BY_VIEW)
    assert declaring.finish(moving.connection, "search_documents") == ["article"], "its view has a column version"
    assert declaring.is_finished(moving.connection)


def test_the_upgrade_is_not_finished_while_an_older_program_beats(moving: Moving) -> None:
    moving.connection.execute("alter table search_outbox_leases alter column revision drop not null")
    moving.set(BY_VIEW)
    old = "insert into search_outbox_workers (worker_id, start_id, version) values ('old', gen_random_uuid(), '0.1.0')"
    moving.connection.execute(old)
    with pytest.raises(declaring.OlderWorkers, match="old"):
        declaring.finish(moving.connection, "search_documents")
    moving.connection.execute("update search_outbox_workers set state = 'stopped'")
    declaring.finish(moving.connection, "search_documents")
    assert declaring.is_finished(moving.connection)


GAP = 1_000_000  # above what was met: others may have drawn further meanwhile


@pytest.mark.parametrize(("highest", "raised"), [("900", 900 + GAP), ("2::numeric ^ 62 + 5", 2**62 + GAP), ("null", 1)])
def test_finishing_the_upgrade_raises_the_sequence_above_the_versions_that_the_view_gave(
    database: str, connection: psycopg.Connection, highest: str, raised: int
) -> None:
    connection.execute("alter table search_outbox_leases alter column revision drop not null")
    connection.execute(
        "create view search_documents as select 'article'::text as entity_type, '1'::text as entity_id,"
        f" '{{}}'::json as document, ({highest})::bigint as version".encode()
    )
    declaring.finish(connection, "search_documents")
    assert connection.execute("select last_value from search_outbox_version").fetchone() == (raised,)
