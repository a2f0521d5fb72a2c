"""Pages of a fan-out: what a kill between two pages, pacing and merging leave of it."""

import pytest
from elasticsearch import Elasticsearch

from tests.fixtures.fanning import Fanning, Killed
from tests.fixtures.queue import EventTable

PAGE, MOST_OPEN = 10, 20


@pytest.fixture
def world(
    queue: EventTable, es: Elasticsearch, elastic_url: str, index: str, monkeypatch: pytest.MonkeyPatch
) -> Fanning:
    """Pages of ten, two of which may be open."""
    monkeypatch.setattr("outbox.daemon.fanout.PAGE", PAGE)
    monkeypatch.setattr("outbox.daemon.fanout.MOST_OPEN", MOST_OPEN)
    return Fanning(queue, es, elastic_url, index)


def test_a_fanout_of_many_pages_writes_each_id_once_and_spends_one_attempt(world: Fanning) -> None:
    world.write(articles=95)
    world.rename()
    world.settle()
    assert world.refreshed() == list(range(1, 96))
    assert [len(page) for page in world.store.pages] == [10] * 9 + [5]
    (fanout,) = world.fanouts()
    assert (fanout.status, fanout.fanout_written, fanout.attempts) == ("done", 95, 1)
    assert world.wrong() == {}


@pytest.mark.parametrize("page", [1, 3])
def test_a_worker_killed_between_pages_loses_none_and_doubles_none(world: Fanning, page: int) -> None:
    world.write(articles=35)
    world.rename()
    world.store.dies_at = page
    with pytest.raises(Killed):
        world.settle()
    (fanout,) = world.fanouts()
    assert (fanout.status, fanout.fanout_written) == ("processing", 10 * (page - 1) or None)
    world.colleague()
    world.queue.expire()
    assert world.queue.reclaims().step(lambda _: False).rows == 1
    world.settle()
    assert world.refreshed() == list(range(1, 36))
    assert world.wrong() == {}


def test_a_worker_whose_fanout_was_taken_by_another_writes_nothing_more(world: Fanning) -> None:
    """It slept after its query; a colleague has written everything meanwhile."""
    world.write(articles=15)
    world.rename()
    sleeper, write = world.worker, world.store.store.write
    mine = world.store

    def slept(*args: object) -> object:
        mine.store.write = write  # type: ignore[method-assign]
        world.queue.expire()
        world.queue.reclaims().step(lambda _: False)
        world.colleague()
        world.settle()
        return write(*args)  # type: ignore[arg-type]

    mine.store.write = slept  # type: ignore[assignment, method-assign]
    sleeper.run()
    world.settle()
    assert world.refreshed() == list(range(1, 16))
    assert world.wrong() == {}


def test_while_there_is_no_room_no_page_is_written_and_no_attempt_is_spent(world: Fanning) -> None:
    world.write(articles=5)
    world.no_room(MOST_OPEN)
    world.rename()
    for _ in range(3):
        world.queue.make_due()
        world.connection.execute("update search_outbox_events set next_retry_at = 'infinity' where entity_id = '0'")
        world.project()
    (fanout,) = world.fanouts()
    assert (fanout.status, fanout.attempts, world.store.pages) == ("pending", 0, [])
    world.room()
    world.settle()
    assert world.refreshed() == [1, 2, 3, 4, 5]


def test_a_fanout_that_waits_for_room_asks_anew_for_the_change_that_is_merged_with_it(world: Fanning) -> None:
    """The first change finds its articles and no room. An article then moves to the author and is projected, and the
    author is renamed again: the ids of the first query lack that article."""
    world.write(authors=2, articles=3)
    world.rename(name="first")
    world.no_room(MOST_OPEN)
    world.project()
    assert [row.status for row in world.fanouts()] == ["pending"]
    world.connection.execute("update article set author_id = 1 where id = 2")
    world.project()
    assert world.source("article:2") == {"title": "article 2", "author": "first"}
    world.rename(name="second")
    world.room()
    world.settle()
    assert world.wrong() == {}


def test_thousands_of_fanouts_of_one_row_each_are_one_query_and_one_page_per_batch(
    world: Fanning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    world.write(authors=2_000, articles=1)
    world.connection.execute("update author set name = name || ' renamed'")
    assert len(world.fanouts()) == 2_000
    world.settle()
    assert world.refreshed() == list(range(1, 2_001))
    batches = world.store.asked.count("read")
    assert batches <= 2_000 / 500 + 2
    assert [world.store.asked.count(call) for call in ("find", "open_refreshes", "write")] == [batches] * 3
    assert world.wrong() == {}
