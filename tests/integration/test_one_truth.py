"""One truth per entity type: declared by attach, by a person or by the first event, and never guessed."""

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from outbox.daemon.view_trust import SAMPLE_SECONDS
from outbox.facts import BrakeOff, BrakeOn, VersionAhead
from outbox.policy.audit import Actor, Source
from outbox.policy.document import BATCH_BYTES
from outbox.policy.entity_type import BY_VIEW, EntityType, KeptBy, Versions
from outbox.policy.outcome import Code, Failure, Reason
from outbox.ports import BulkAction, WriteReport
from outbox.store.documents import ViewDocuments
from outbox.store.entity_types import PostgresEntityTypes
from tests.fixtures.events import Time
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.queue import EventTable
from tests.fixtures.sinks import Hooked

BY_PAYLOAD = EntityType(KeptBy.PAYLOAD)
TABLES = """
create table article (id text primary key, title text not null);
create table cart (id text primary key, gone boolean not null default false);
"""
VIEW = """
create view search_documents as
    select 'article'::text as entity_type, id as entity_id, jsonb_build_object('title', title) as document from article
    union all
    select 'cart', id, '{}' from cart where not gone
"""


class Shop:
    def __init__(self, queue: EventTable) -> None:
        self.queue = queue
        self.db = queue.connection
        self.db.execute(TABLES)
        self.types = PostgresEntityTypes(queue.pool())
        self.clock = Time()
        self.sink = Hooked()
        self.worker = self.a_worker()

    def a_worker(self) -> InProcess:
        documents = ViewDocuments(self.queue.pool(), "search_documents", batch_bytes=BATCH_BYTES, clock=self.clock)
        return InProcess(Parts(self.queue.store(), self.sink, documents=documents, clock=self.clock))

    def add(self, id: str, title: str = "one") -> None:
        self.db.execute("insert into article values (%s, %s)", [id, title])

    def ask(self, id: str, kind: str = "article", op: str = "refresh") -> UUID:
        return self.queue.produce(id, op, entity_type=kind, payload=None)

    def send(self, id: str, kind: str = "note", **columns: Any) -> UUID:
        return self.queue.produce(id, entity_type=kind, **columns)

    def declared(self) -> dict[str, str]:
        return {kind: about.kept_by.value for kind, about in self.types.read()[1].items()}

    def failed(self, id: UUID) -> tuple[str, str | None]:
        row = self.queue.row(id)
        return row.status, row.error_code

    def document(self, id: str, kind: str = "article") -> Any:
        found = self.sink.documents.get(("articles", f"{kind}:{id}"))
        return None if found is None else json.loads(found[1])


@pytest.fixture
def shop(queue: EventTable) -> Shop:
    return Shop(queue)


@pytest.fixture
def viewed(shop: Shop) -> Shop:
    shop.db.execute(VIEW)
    return shop


# The first event


def test_the_first_event_of_a_type_declares_it_by_what_its_document_is_written_from(shop: Shop) -> None:
    """One before there is a view, which the same worker sees when it comes."""
    shop.send("n")
    shop.worker.run()
    shop.db.execute(VIEW)
    shop.add("1")
    shop.ask("1")
    shop.worker.run()
    assert shop.declared() == {"article": "view", "note": "payload"}
    assert shop.queue.counts() == {"done": 2}


def test_a_type_with_rows_in_the_view_is_the_views_whatever_comes_first(viewed: Shop) -> None:
    viewed.add("1")
    id = viewed.send("1", "article")
    viewed.worker.run()
    assert viewed.declared() == {"article": "view"}
    assert viewed.failed(id) == ("failed", "OUTBOX_PAYLOAD_UNSUPPORTED")
    assert "outbox types set" in viewed.queue.row(id).error


def test_a_delete_declares_nothing_and_is_sent_under_its_own_version(shop: Shop) -> None:
    shop.queue.produce("1", "delete", entity_type="note", event_version=7)
    shop.worker.run()
    assert shop.declared() == {}
    assert shop.sink.tombstones == {("articles", "note:1"): 7}
    assert shop.queue.counts() == {"done": 1}


def test_a_delete_of_a_type_that_nobody_declared_fails_where_the_index_has_something_newer(shop: Shop) -> None:
    shop.sink.documents["articles", "note:1"] = (100, b"{}")
    id = shop.queue.produce("1", "delete", entity_type="note", event_version=7)
    shop.worker.run()
    assert shop.failed(id) == ("failed", "OUTBOX_PRECONDITION_FAILED")
    assert "outbox types set" in shop.queue.row(id).error


@pytest.mark.parametrize("refused", ["not-a-real-op", "upsert"])
def test_a_refused_event_declares_nothing(shop: Shop, refused: str) -> None:
    """An op that nobody knows, and a document that the index will not have."""
    shop.sink.refuse = lambda action: Failure(Reason.ES_REJECTED_DOCUMENT, "no", Code.PAYLOAD_INVALID, "f")
    id = shop.send("1", op=refused)
    shop.worker.run()
    assert shop.queue.row(id).status == "failed"
    assert shop.declared() == {}


def test_of_two_first_events_in_two_workers_one_declares_and_the_other_is_not_sent(shop: Shop) -> None:
    """The declaration is inserted and read back before anything is sent."""
    payload = shop.send("1", "thing")
    claimed = shop.worker.claim()
    shop.types.declare({"thing": BY_VIEW}, "a colleague")
    shop.worker.projector.project(claimed, 0)
    assert shop.failed(payload) == ("failed", "OUTBOX_PAYLOAD_UNSUPPORTED")
    assert shop.sink.documents == {}


def test_of_two_first_events_in_two_workers_at_the_same_moment_one_is_not_sent(shop: Shop) -> None:
    """A colleague declares it between our question and our own declaration: what holds is read back."""
    payload = shop.send("1", "thing")
    real: Any = shop.worker.projector.declarations.store

    class Faster:
        def declare(self, types: Any, by: str) -> Any:
            real.declare({"thing": BY_VIEW}, "a colleague")
            return real.declare(types, by)

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    shop.worker.projector.declarations.store = Faster()
    shop.worker.run()
    assert shop.failed(payload) == ("failed", "OUTBOX_PAYLOAD_UNSUPPORTED")
    assert shop.sink.documents == {}


def test_the_first_event_shows_whether_versions_are_ours_or_the_producers(shop: Shop) -> None:
    shop.send("1")
    shop.send("1", "priced", event_version=1_700_000_000_000)
    shop.worker.run()
    found = {kind: about.versions for kind, about in shop.types.read()[1].items()}
    assert found == {"note": Versions.OURS, "priced": Versions.PRODUCER}


def test_without_payload_and_without_a_view_an_event_fails_and_declares_nothing(shop: Shop) -> None:
    id, refresh = shop.ask("1", op="upsert"), shop.ask("2")
    neighbour = shop.send("n")
    shop.worker.run()
    assert shop.failed(id) == shop.failed(refresh) == ("failed", "OUTBOX_PAYLOAD_MISSING")
    assert "create search_documents" in shop.queue.row(id).error
    assert shop.queue.row(neighbour).status == "done"
    assert shop.declared() == {"note": "payload"}


# Declared


def test_a_declared_type_whose_view_is_not_there_yet_waits_and_a_view_that_comes_later_is_used(shop: Shop) -> None:
    """B12: the worker was started before the view was created."""
    shop.types.declare({"article": BY_VIEW}, "attach")
    shop.add("1")
    id = shop.ask("1")
    shop.worker.run()
    row = shop.queue.row(id)
    assert (row.status, row.attempts, row.error_reason) == ("pending", 0, "documents_unavailable")
    shop.db.execute(VIEW)
    shop.queue.make_due()
    shop.worker.run()
    assert shop.document("1") == {"title": "one"}


def test_an_event_of_the_other_sort_fails_with_its_remedy_and_holds_up_nobody(viewed: Shop) -> None:
    viewed.add("1")
    viewed.ask("1")
    viewed.send("n")
    viewed.worker.run()
    wrong = [viewed.send("1", "article"), viewed.ask("n", "note"), viewed.ask("n", "note", "upsert")]
    right = [viewed.ask("1"), viewed.send("n")]
    viewed.worker.run()
    assert [viewed.failed(id)[1] for id in wrong] == [
        "OUTBOX_PAYLOAD_UNSUPPORTED",
        "OUTBOX_PAYLOAD_MISSING",
        "OUTBOX_PAYLOAD_MISSING",
    ]
    assert [viewed.queue.row(id).status for id in right] == ["done", "done"]


def test_a_payload_from_before_its_type_moved_to_the_view_brings_nothing_back(viewed: Shop) -> None:
    """B14: it failed, its entity was unpublished, Elasticsearch forgot the delete, a person replays it."""
    viewed.types.declare({"article": BY_PAYLOAD}, "test")
    viewed.sink.refuse = lambda action: Failure(Reason.ES_REJECTED_DOCUMENT, "no", Code.PAYLOAD_INVALID, "f")
    old = viewed.send("1", "article")
    viewed.worker.run()
    viewed.sink.refuse = lambda action: None
    viewed.types.change("article", BY_VIEW, Actor("alice", Source.CLI), "moved", BY_PAYLOAD)
    viewed.ask("1")
    viewed.worker.run()
    viewed.sink.tombstones.clear()
    viewed.db.execute("update search_outbox_events set status = 'pending' where id = %s", [old])
    viewed.worker.run()
    assert viewed.failed(old) == ("failed", "OUTBOX_PAYLOAD_UNSUPPORTED")
    assert viewed.document("1") is None


def test_a_batch_under_a_declaration_that_changed_meanwhile_is_done_again(viewed: Shop) -> None:
    viewed.types.declare({"article": BY_PAYLOAD}, "test")
    viewed.add("1", "true")
    id = viewed.send("1", "article", payload='{"title": "told"}')
    actor = Actor("alice", Source.CLI)
    viewed.sink.after = lambda: viewed.types.change("article", BY_VIEW, actor, "moved", BY_PAYLOAD)
    viewed.worker.run()
    row = viewed.queue.row(id)
    assert (row.status, row.attempts) == ("pending", 0), "nothing was settled under the old declaration"
    viewed.worker.run()
    assert viewed.failed(id) == ("failed", "OUTBOX_PAYLOAD_UNSUPPORTED")
    audited = viewed.queue.value("select detail from search_outbox_audit where action = 'ENTITY_TYPE_DECLARED'")
    assert (audited["was"]["kept_by"], audited["now"]["kept_by"]) == ("payload", "view")


def test_a_delete_of_a_new_type_is_done_again_if_a_first_event_declared_it_meanwhile(viewed: Shop) -> None:
    """The model found it: docs/model/Declarations.tla. A declaration by an event raises no revision, and a producer's
    version is above every drawn one."""
    id = viewed.queue.produce("1", "delete", entity_type="article", payload=None, event_version=5_000)

    def a_colleague_is_faster() -> None:
        viewed.add("1")
        viewed.types.declare({"article": BY_VIEW}, "a colleague")
        viewed.sink.documents["articles", "article:1"] = (3, b'{"title": "one"}')

    viewed.sink.before = a_colleague_is_faster
    viewed.worker.run()
    row = viewed.queue.row(id)
    assert (row.status, row.attempts, viewed.document("1")) == ("pending", 0, None)
    viewed.worker.run()
    assert (viewed.queue.row(id).status, viewed.document("1")) == ("done", {"title": "one"})


def test_an_older_program_cannot_claim_once_the_upgrade_is_finished(shop: Shop) -> None:
    """Its lease has no revision. Where no worker was ever here, from the first migration on."""
    from psycopg.errors import NotNullViolation

    old = "insert into search_outbox_leases (token, owner, start_id, lease_until, ids) values"
    old += " (gen_random_uuid(), 'old', gen_random_uuid(), now(), '{}')"
    with pytest.raises(NotNullViolation):
        shop.db.execute(old.encode())


# The index ahead


def test_a_refresh_that_meets_a_version_ahead_each_time_is_released_and_never_done(viewed: Shop) -> None:
    viewed.add("1")
    id = viewed.ask("1")
    write = viewed.sink.write

    def ahead(actions: Sequence[BulkAction], deadline: float) -> WriteReport:
        viewed.sink.documents["articles", "article:1"] = (actions[0].version + 1_000_000, b"{}")
        return write(actions, deadline)

    viewed.worker.projector.sink = type("Ahead", (), {"write": staticmethod(ahead), "probe": viewed.sink.probe})()
    viewed.worker.run()
    row = viewed.queue.row(id)
    assert (row.status, row.attempts) == ("pending", 0)


def test_a_sequence_that_a_colleague_raised_hides_nobodys_change(viewed: Shop) -> None:
    """The index is ahead of a restored database. A colleague raises the sequence between our refusal and our reading of
    it, so that the version in the index looks like one that was given out."""
    viewed.add("1", "now")
    viewed.sink.documents["articles", "article:1"] = (500, b'{"title": "from before"}')
    id = viewed.ask("1")
    viewed.sink.after = lambda: viewed.db.execute("select setval('search_outbox_version', 600)")
    viewed.worker.run()
    assert viewed.document("1") == {"title": "now"}
    assert viewed.queue.row(id).status == "done"


@pytest.mark.parametrize("others", [5, 100])
def test_a_version_that_no_event_of_its_entity_explains_is_noticed_however_many_events_there_are(
    shop: Shop, others: int
) -> None:
    """B7: producers have drawn past the index's version by the time the refusal arrives."""
    shop.send("0")
    shop.worker.run()
    shop.sink.documents["articles", "note:1"] = (50, b'{"from": "before"}')
    shop.send("1")
    shop.sink.after = lambda: shop.queue.produce_many(others, "note")
    shop.worker.run()
    assert [(event.entity_id, current) for event, current in shop.worker.projector.higher.ahead] == [("1", 50)]
    assert not shop.queue.worker("w").version_known("note", "1", 50, 1000)
    assert shop.worker.of(VersionAhead) == [], "upkeep says it, apart from the lanes"


# The brake for lookups


def test_soft_deletes_of_one_type_hold_back_no_other_type(viewed: Shop) -> None:
    """B9: sixty carts go at once, then one article is unpublished."""
    viewed.add("1")
    viewed.ask("1")
    viewed.db.execute("insert into cart select 'c' || g from generate_series(1, 60) g")
    viewed.ask("c1", "cart")
    viewed.worker.run()
    viewed.db.execute("update cart set gone = true")
    for n in range(1, 61):
        viewed.ask(f"c{n}", "cart")
    viewed.worker.run()
    assert viewed.queue.counts()["pending"] == 60, "no other cart is known to be there"
    viewed.db.execute("delete from article")
    viewed.ask("1")
    viewed.worker.run()
    assert viewed.document("1") is None
    assert [fact.fingerprint for fact in viewed.worker.of(BrakeOn)] == ["lookups_without_a_row:cart"]


def test_the_brake_lets_go_by_itself_when_others_of_the_type_are_found(viewed: Shop) -> None:
    """First a view that has lost all of them, then one that has the others again: what is still gone is deleted."""
    viewed.db.execute("insert into cart select 'c' || g from generate_series(1, 80) g")
    for n in range(1, 81):
        viewed.ask(f"c{n}", "cart")
    viewed.worker.run()
    viewed.clock.passes(61)
    viewed.db.execute("update cart set gone = true")
    for n in range(1, 61):
        viewed.ask(f"c{n}", "cart")
    viewed.worker.run()
    assert viewed.queue.counts() == {"done": 80, "pending": 60}
    assert len(viewed.sink.documents) == 80, "nothing is deleted"
    assert len(viewed.worker.of(BrakeOn)) == 1
    viewed.db.execute("update cart set gone = false where substr(id, 2)::int > 60")
    viewed.clock.passes(SAMPLE_SECONDS + 1)
    viewed.queue.make_due()
    viewed.worker.run()
    assert viewed.queue.counts() == {"done": 140}
    assert len(viewed.sink.documents) == 20
    assert [fact.held for fact in viewed.worker.of(BrakeOff)] == [60]
