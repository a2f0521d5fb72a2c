"""The console's page about the index: what was compared, what was found, and a rebuild under way."""

from collections.abc import Iterator

import httpx
import pytest
from elasticsearch import Elasticsearch

from outbox.reindex import mismatches
from outbox.reindex.verify import VerifyOptions
from tests.fixtures.console import serving
from tests.fixtures.queue import EventTable
from tests.fixtures.rebuilding import RebuildWorld


@pytest.fixture
def world(
    queue: EventTable, es: Elasticsearch, elastic_url: str, absent_index: str, monkeypatch: pytest.MonkeyPatch
) -> RebuildWorld:
    monkeypatch.setattr(mismatches, "WAITS_SECONDS", (0.1,) * 4)
    return RebuildWorld(queue, es, elastic_url, absent_index)


@pytest.fixture
def console(world: RebuildWorld) -> Iterator[httpx.Client]:
    with serving(**world.environment()) as served:
        yield served.client


def test_the_last_result_shows_counts_ids_and_fields_but_no_values(world: RebuildWorld, console: httpx.Client) -> None:
    world.fill(12)
    world.project()
    world.es.delete(index=world.index, id="article:3")
    world.es.index(index=world.index, id="article:4", document={"title": "a secret <b>", "n": 4})
    world.reindexing().verify.run(VerifyOptions(rate=0, by="alice"))
    page = console.get("/ops/verify").text
    assert "2 documents are not as they should be" in page
    assert "article:3" in page
    assert "article:4" in page
    assert "title" in page
    assert "a secret" not in page
    assert "alice" in page


def test_a_rebuild_is_seen_on_the_page_the_overview_and_in_status(world: RebuildWorld, console: httpx.Client) -> None:
    world.fill(12)
    world.project()
    ready = world.start()
    page = console.get("/ops/verify").text
    assert ready.new_index in page
    assert "outbox rebuild --swap" in page
    assert "Nothing was compared yet" in page, "a rebuild's own comparisons are not about what people search"
    from outbox.app.desk import open_desk

    with open_desk(world.settings) as desk:
        status = desk.status.read()
    assert status.rebuild == ready.sentence
    assert "An index is being rebuilt" in console.get("/ops/queue").text
    world.es.indices.delete(index=ready.new_index)
    world.put("1", "later")
    world.project()
    assert "broken" in console.get("/ops/verify").text
    desk2, taken = world.taken()
    desk2.cancel(taken)
    with open_desk(world.settings) as desk:
        assert desk.status.read().rebuild is None
