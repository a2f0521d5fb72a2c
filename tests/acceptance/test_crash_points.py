"""kill -9 at each of the sixteen points of a worker's way: another worker finishes, and nothing is lost or doubled."""

import os
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack

import pytest
from elasticsearch import Elasticsearch

from labs import index as lab_index
from labs import invariants
from labs.receiver import Receiver
from tests.fixtures.depth import depth
from tests.fixtures.postgres import fresh_database
from tests.nemesis.crash_campaign import OPEN, Campaign
from tests.nemesis.crash_hooks import POINTS
from tests.nemesis.invariants import (
    attempts_are_bounded,
    audit_is_complete,
    it_drains,
    no_ghost_is_seen,
    nothing_secret_in_replies,
    outages_fail_nothing,
    verified,
)
from tests.nemesis.joined_documents import as_the_view_says

# Deaths at each point. A hundred took 15 minutes on two cores: OUTBOX_CRASH_DEATHS=100 and `--timeout 3600`.
TIMES = int(os.environ.get("OUTBOX_CRASH_DEATHS") or depth(1, 2, 20))
CHECKS = (
    invariants.nothing_lost, invariants.nothing_made_up, invariants.converged, invariants.nothing_deleted_is_back,
    invariants.nothing_left_leased, invariants.no_document_in_logs, invariants.one_lease, invariants.one_holder,
    invariants.legal_steps, verified, no_ghost_is_seen, outages_fail_nothing, it_drains, audit_is_complete,
    nothing_secret_in_replies, attempts_are_bounded,
)  # fmt: skip
EVENTS = 40
# Where rows need not be held: acknowledged or about to be, the lane had finished, or a command died.
MAYBE_NOTHING_IN_HAND = {"ack sent before commit reply", "after ack", "in replay", "in webhook send"}
SHORTCUT = "update search_outbox_replays set lease_until = clock_timestamp() where status = 'dispatching'"
DELIVERY = (
    "insert into search_outbox_webhook_deliveries (id, type, url, body, dedupe_key)"
    " values (gen_random_uuid(), 'replay.settled', %s, '{}', gen_random_uuid()::text)"
)
UNDELIVERED = "select count(*) from search_outbox_webhook_deliveries where status <> 'delivered'"


def one_round(campaign: Campaign) -> None:
    campaign.commit(EVENTS)
    campaign.die()
    campaign.finish()


def reclaim_round(campaign: Campaign) -> None:
    """The first dies with rows held, the second while it takes them back."""
    campaign.commit(EVENTS)
    campaign.die(point="claim committed", after=1)
    campaign.die(after=1)
    campaign.finish()


def replay_round(campaign: Campaign) -> None:
    """Refused documents; the mapping is fixed; the command that replays them dies; a daemon takes over."""
    refuse(campaign, refuse=True)
    campaign.commit(EVENTS // 2)
    campaign.commit(5, bad=True)
    campaign.finish()
    assert campaign.value("select count(*) from search_outbox_events where status = 'failed'") == 5
    refuse(campaign, refuse=False)
    campaign.die("replay", "--by", "alice", "--reason", "fixed", "--all", "--yes", after=1)
    with campaign.connect() as connection:
        connection.execute(SHORTCUT)  # 15 s are a long wait in a test
    campaign.finish(lambda: campaign.value("select count(*) from search_outbox_events where status <> 'done'") == 0)


def refuse(campaign: Campaign, *, refuse: bool) -> None:
    revision = {"type": "long", "ignore_malformed": not refuse}
    campaign.elastic.indices.put_mapping(index=campaign.index, properties={"revision": revision})


def webhook_round(campaign: Campaign) -> None:
    """The receiver has it, and nobody knows: it comes again, with the same id."""
    campaign.commit(EVENTS // 4)
    with campaign.connect() as connection:
        connection.execute(DELIVERY, [campaign.settings["OUTBOX_WEBHOOK_URL"]])
    campaign.die(after=1)
    assert campaign.value(UNDELIVERED) == 1
    with campaign.connect() as connection:
        connection.execute(
            "update search_outbox_webhook_deliveries set next_attempt_at = clock_timestamp() where status = 'pending'"
        )  # it was taken for half a minute
    campaign.finish(lambda: campaign.value(UNDELIVERED) == 0 and campaign.value(OPEN) == 0)


def fanout_round(campaign: Campaign) -> None:
    """Of four pages; the one that takes over goes on behind the last that was written."""
    campaign.commit(EVENTS // 4)
    campaign.rename()
    campaign.die()
    campaign.finish()


FANOUTS = ("before a page of a fan-out", "after a page of a fan-out")
ROUNDS = {"in reclaim": reclaim_round, "in replay": replay_round, "in webhook send": webhook_round}
ROUNDS |= dict.fromkeys(FANOUTS, fanout_round)


def run(campaign: Campaign) -> Campaign:
    for _ in range(TIMES):
        ROUNDS.get(campaign.point, one_round)(campaign)
    return campaign


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def campaigns(
    postgres_url: str,
    migrated_template: str,
    es: Elasticsearch,
    elastic_url: str,
    receiver: Receiver,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, "Future[Campaign]"]]:
    """All points side by side: most of a round is waiting for a lease of three seconds to run out."""
    folder = tmp_path_factory.mktemp("crash")
    name = f"test-{uuid.uuid4().hex[:16]}"
    with ExitStack() as undo:
        pool = undo.enter_context(ThreadPoolExecutor(len(POINTS)))
        futures = {}
        for number, point in enumerate(POINTS):
            url = undo.enter_context(fresh_database(postgres_url, migrated_template))
            index = f"{name}-{number}"
            lab_index.create(es, index, {}, {})
            undo.callback(lab_index.drop, es, index)
            place = folder / point.replace(" ", "-")
            campaign = Campaign(point, number, url, es, elastic_url, index, place, webhook(point, receiver))
            if point in FANOUTS:
                campaign.link()
            undo.callback(campaign.ledger.close)  # where its own test is not asked for
            futures[point] = pool.submit(run, campaign)
        undo.callback(wait, futures.values())  # where only some are asked for: first the others end, then their servers
        yield futures


def webhook(point: str, receiver: Receiver) -> dict[str, str]:
    if point != "in webhook send":
        return {}
    return {"OUTBOX_WEBHOOK_URL": receiver.url, "OUTBOX_WEBHOOK_ALLOWED_HOSTS": "127.0.0.1"}


@pytest.mark.parametrize("point", FANOUTS)
def test_a_fanout_that_was_killed_has_refreshed_every_book_and_none_twice(
    point: str, campaigns: "dict[str, Future[Campaign]]"
) -> None:
    campaign = campaigns[point].result()
    twice = campaign.value(
        "select count(*) from (select from recorded_refreshes r join search_outbox_events e using (id)"
        " where e.fanout_id is not null group by e.fanout_id, e.entity_id having count(*) > 1) as doubled"
    )
    books = campaign.value("select count(*) from search_outbox_events where fanout_id is not null")
    assert (twice, books) == (0, 35 * TIMES)


@pytest.mark.parametrize("point", POINTS)
def test_kill_9_at_this_point_loses_nothing_and_doubles_nothing(
    point: str, campaigns: "dict[str, Future[Campaign]]", receiver: Receiver
) -> None:
    campaign = campaigns[point].result()
    assert campaign.deaths == TIMES
    found = campaign.evidence()
    checks = (*CHECKS, as_the_view_says) if campaign.linked else CHECKS
    broken = [finding for finding in (check(found) for check in checks) if not finding.ok]
    assert broken == []
    back = campaign.taken_back(found)
    print(f"{point}: {campaign.deaths} deaths, {len(found.committed)} events, {back} rows taken back")
    assert back > 0 or point in MAYBE_NOTHING_IN_HAND
    if point == "in webhook send":
        ids = [headers["webhook-id"] for headers, _ in receiver.taken]
        assert {ids.count(id) for id in ids} == {2}, "each message twice, known by its id"
