"""What the wide world is built of fits a real PostgreSQL: ids of every type, the view over all parts, attachments."""

import pytest

from tests.fixtures.queue import EventTable
from tests.nemesis.ground import make_tables
from tests.nemesis.ids import MADE_BY, Ids
from tests.nemesis.parts import PARTS
from tests.nemesis.recipe import Recipe

STEPS = "create table recorded_steps (at timestamptz, old_token uuid)"  # labs/steps.sql is about other tables


@pytest.mark.parametrize("kind", MADE_BY)
def test_an_id_of_a_load_is_the_id_that_sql_makes(queue: EventTable, kind: str) -> None:
    ids = Ids(kind)
    queue.connection.execute(ids.function)
    made = queue.connection.execute("select nemesis_id('p', n)::text from generate_series(0, 20) n").fetchall()
    assert [id for (id,) in made] == [ids.typed(f"p{n}") for n in range(21)]


@pytest.mark.parametrize("kind", ["uuid", "char(26)"])
def test_all_parts_together_make_one_view_and_are_attached(queue: EventTable, kind: str) -> None:
    queue.connection.execute(STEPS)
    make_tables(queue.connection, Recipe(frozenset({*PARTS, f"ids:{kind}"}), "wide"))
    triggers = queue.value("select count(distinct tgrelid) from pg_trigger where tgname like 'search_outbox%%'")
    tables = {table for part in PARTS.values() for table, _, _ in part.attached}
    assert triggers >= len(tables)
    assert queue.value("select count(*) from search_documents") == 0


def test_what_is_replicated_is_noted_too_although_it_is_written_without_a_search_path(queue: EventTable) -> None:
    queue.connection.execute(STEPS)
    make_tables(queue.connection, Recipe(frozenset({"carts"}), "wide"))
    queue.connection.execute("set search_path = ''")
    queue.connection.execute(
        "insert into public.search_outbox_events (entity_type, entity_id, op) values ('cart', 'q1', 'refresh')"
    )
    assert queue.value("select count(*) from public.recorded_refreshes") == 1
