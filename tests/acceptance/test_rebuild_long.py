"""The full length of a rebuild: 200,000 documents, 100 changes per second, a tenth of them deletes. Prints times."""

import threading
import time

import psycopg
import pytest
from elasticsearch import Elasticsearch

from tests.fixtures.bustle import Shop, bustling, mapping, open_shop
from tests.fixtures.processes import StartProcess
from tests.fixtures.waiting import PATIENCE_SECONDS

__all__ = ["mapping"]
pytestmark = pytest.mark.long  # test_rebuild.py is the daily drill

SIZE = 200_000
RATE = 100.0
KEEPS_UP_SECONDS = 10.0
OLDEST = """
select coalesce(extract(epoch from clock_timestamp() - min(created_at)), 0)::float8, count(*)
  from search_outbox_events where processed_at is null and failed_at is null
"""


class Watch(threading.Thread):
    """How far the drain is behind, and how long each step of the rebuild took."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._halt = threading.Event()
        self.oldest: list[float] = []
        self.most_open = 0
        self.steps: dict[str, float] = {}

    def run(self) -> None:
        seen = time.monotonic()
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._halt.wait(0.25):
                age, waiting = connection.execute(OLDEST).fetchone() or (0.0, 0)
                self.oldest.append(age)
                self.most_open = max(self.most_open, waiting)
                row = connection.execute("select step from search_outbox_rebuilds order by id desc limit 1").fetchone()
                now = time.monotonic()
                if row is not None:
                    self.steps[row[0]] = self.steps.get(row[0], 0.0) + now - seen
                seen = now

    def halt(self) -> None:
        self._halt.set()
        self.join(PATIENCE_SECONDS)


def timed(shop: Shop, *args: str, within: float = 1_800.0) -> float:
    began = time.monotonic()
    done = shop.outbox(*args, within=within)
    assert done.code == 0, done
    return time.monotonic() - began


def test_200_000_documents_move_to_a_new_mapping_and_nobody_notices(
    database: str, elastic_url: str, absent_index: str, es: Elasticsearch, start_process: StartProcess, mapping: str
) -> None:
    shop = open_shop(database, elastic_url, absent_index, es, start_process, SIZE)
    watch, took = Watch(database), {}
    with bustling(shop, RATE) as (changes, reader):
        watch.start()
        began = time.monotonic()
        took["verify before"] = timed(shop, "verify", "--rate", "0")
        took["rebuild to ready and swap"] = timed(shop, "rebuild", "--mapping", mapping, "--yes", "--rate", "0")
        assert shop.behind() == [f"{shop.alias}-v2"]
        took["verify after the swap"] = timed(shop, "verify", "--rate", "0")
        took["rollback"] = timed(shop, "rebuild", "--rollback", "--yes")
        assert shop.behind() == [f"{shop.alias}-v1"]
        took["verify after the rollback"] = timed(shop, "verify", "--rate", "0")
        lasted = time.monotonic() - began
    watch.halt()
    print({name: round(seconds, 1) for name, seconds in took.items()})
    print("steps", {name: round(seconds, 1) for name, seconds in watch.steps.items()})
    ages = sorted(watch.oldest)
    print(
        f"{changes.made:,} changes in {lasted:.0f} s ({changes.made / lasted:.0f} a second); the oldest open event was"
        f" {ages[len(ages) // 2]:.2f} s old in the middle, {ages[-1]:.1f} s at most, {watch.most_open} open at most;"
        f" {reader.looks:,} searches, {len(reader.errors)} errors, never fewer than {reader.least:,} documents"
    )
    assert reader.errors == []
    assert reader.least >= SIZE
    assert changes.made > RATE * lasted * 0.9, "the source kept its pace"
    assert ages[-1] < KEEPS_UP_SECONDS, "the drain kept up throughout"
    shop.caught_up()
    assert len(set(shop.counts())) == 1
    assert shop.value("select count(*) from search_outbox_events where status = 'failed'") == 0
