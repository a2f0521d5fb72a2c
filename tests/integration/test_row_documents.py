"""A table whose rows are its documents: changes that a payload, captured by a trigger, got wrong."""

import pytest
from elasticsearch import Elasticsearch

from outbox.store.attach.attach import attach
from tests.fixtures.joined import JoinedWorld
from tests.fixtures.queue import EventTable

NOTES = "create table notes (id int not null, title text, unique (id) deferrable initially deferred)"
VIEW = (
    "create view search_documents as"
    " select 'note'::text as entity_type, id as entity_id, to_json(t) as document from notes as t"
)
TOUCH = """
create function touch() returns trigger language plpgsql as $$
begin
    update notes set title = title || ', touched' where id = new.id and title not like '%touched';
    return null;
end $$;
create trigger a_touch after insert or update on notes for each row execute function touch();
"""
ARCHIVE = """
create function archive() returns trigger language plpgsql as $$
begin
    delete from notes where id = new.id and title = 'old';
    return null;
end $$;
create trigger a_archive after update on notes for each row execute function archive();
"""


class RowWorld(JoinedWorld):
    def _prepare(self) -> None:
        self.connection.execute(NOTES)
        self.connection.execute(VIEW.encode())
        attach(self.connection, "notes", entity_type="note", id_column="id")

    def run(self, *statements: str) -> None:
        """In one transaction; then everything is projected."""
        with self.connection.transaction():
            for statement in statements:
                self.connection.execute(statement.encode())
        self.project()


@pytest.fixture
def world(queue: EventTable, es: Elasticsearch, elastic_url: str, index: str) -> RowWorld:
    return RowWorld(queue, es, elastic_url, index)


def test_the_view_keeps_an_attached_type_before_its_first_event(world: RowWorld) -> None:
    """A payload that comes first declares nothing, and fails."""
    world.queue.produce("1", entity_type="note")
    world.project()
    assert world.queue.counts() == {"failed": 1}
    world.run("insert into notes values (1, 'new')")
    assert world.source("note:1") == {"id": 1, "title": "new"}


def test_a_trigger_of_the_user_that_changes_the_row_again_leaves_no_stale_document(world: RowWorld) -> None:
    world.connection.execute(TOUCH)
    world.run("insert into notes values (1, 'new')")
    assert world.source("note:1") == {"id": 1, "title": "new, touched"}


def test_a_trigger_of_the_user_that_archives_the_row_does_not_bring_it_back(world: RowWorld) -> None:
    world.connection.execute(ARCHIVE)
    world.run("insert into notes values (1, 'new')")
    world.run("update notes set title = 'old'")
    assert world.source("note:1") is None


def test_a_row_that_takes_over_an_id_before_the_other_goes_keeps_its_document(world: RowWorld) -> None:
    world.run("insert into notes values (1, 'first')")
    world.run("insert into notes values (1, 'second')", "delete from notes where title = 'first'")
    assert world.source("note:1") == {"id": 1, "title": "second"}
