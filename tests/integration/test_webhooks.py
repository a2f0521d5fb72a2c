"""Webhooks end to end: real receivers that hang, fail, redirect and refuse, and deliveries on real PostgreSQL."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import psycopg
import pytest

from outbox.daemon.webhooks import Notices, WebhookSender
from outbox.facts import Fact, WebhookTried
from outbox.ops.replay.desk import ReplayRequest
from outbox.ops.webhook import WebhookDesk
from outbox.policy.webhook import HookType, Notice, Posted, message, replay_notices, url_key, verify
from outbox.sink.webhook import post
from outbox.store.pool import Database
from outbox.store.webhooks import PostgresWebhooks
from tests.fixtures.failures import ALICE, audit_counts, events, replay_desk
from tests.fixtures.receivers import Receiver, receive
from tests.fixtures.waiting import PATIENCE_SECONDS

__all__ = ["receive"]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
Receive = Callable[..., Receiver]


class Sending:
    def __init__(self, pool: Database, *, allowed: tuple[str, ...] = ("127.0.0.1",), timeout: float = 0.5) -> None:
        self.store = PostgresWebhooks(pool)
        self.facts: list[Fact] = []
        self.sender = WebhookSender(
            self.store,
            Notices(self.store, None, "p"),
            lambda url, headers, body: post(url, headers, body, timeout, allowed),
            SECRET,
            timeout,
            3,
            self.facts.append,
        )

    def send(self, url: str, key: str | None = None) -> None:
        from datetime import UTC, datetime

        body = message(HookType.SINK_PAUSED, datetime.now(UTC), {"target": "x"})
        self.store.enqueue([Notice(HookType.SINK_PAUSED, url, body, key)])

    def results(self) -> list[str]:
        self.sender.pass_once()
        found = [fact.result for fact in self.facts if isinstance(fact, WebhookTried)]
        self.facts.clear()
        return found


def row(connection: psycopg.Connection) -> tuple[Any, ...]:
    found = connection.execute(
        "select status, attempts, response_status, error,"
        " round(extract(epoch from next_attempt_at - clock_timestamp())::numeric, 1)::float"
        " from search_outbox_webhook_deliveries"
    ).fetchone()
    assert found is not None
    return found


def hurry(connection: psycopg.Connection) -> None:
    connection.execute("update search_outbox_webhook_deliveries set next_attempt_at = now() where status = 'pending'")


def test_a_delivery_is_signed_and_its_id_stays_the_same_over_tries(
    connection: psycopg.Connection, pool: Database, receive: Receive
) -> None:
    there = receive(503, 200)
    sending = Sending(pool)
    sending.send(there.url)
    assert sending.results() == ["failed"]
    hurry(connection)
    assert sending.results() == ["delivered"]
    first, second = there.got
    for headers, body in there.got:
        assert verify(SECRET, headers, body, time.time()) is None
    assert first[0]["webhook-id"] == second[0]["webhook-id"]
    assert first[1] == second[1]
    assert row(connection)[:4] == ("delivered", 2, 200, None)


@pytest.mark.parametrize(("answer", "error"), [(500, "answered 500"), (302, "answered 302")])
def test_anything_but_2xx_is_tried_again_after_half_a_second(
    connection: psycopg.Connection, pool: Database, receive: Receive, answer: int, error: str
) -> None:
    there = receive(answer)
    sending = Sending(pool)
    sending.send(there.url)
    assert sending.results() == ["failed"]
    status, attempts, response, said, delay = row(connection)
    assert (status, attempts, response, said) == ("pending", 1, answer, error)
    assert 0 < delay <= 0.5
    assert len(there.got) == 1  # a redirect is not followed


@pytest.mark.parametrize("answer", ["hang", "drip"])
def test_a_receiver_that_hangs_or_drips_costs_its_timeout_and_no_more(
    connection: psycopg.Connection, pool: Database, receive: Receive, answer: str
) -> None:
    there = receive(answer)
    sending = Sending(pool, timeout=0.5)
    sending.send(there.url)
    began = time.monotonic()
    assert sending.results() == ["failed"]
    assert time.monotonic() - began < 0.5 + 5, "the receiver goes on for thirty seconds and more"
    assert "no reply within 0.5 s" in row(connection)[3]


@contextmanager
def hole() -> Iterator[socket.socket]:
    """A listener that takes no more connections: whoever connects hears nothing."""
    with socket.socket() as full, ExitStack() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            sock = waiting.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        yield full


@contextmanager
def dripping(start: bytes) -> Iterator[socket.socket]:
    """Answers `start`, then a byte now and then without end."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            with suppress(OSError):
                there, _ = listening.accept()
                with there:
                    there.sendall(start)
                    while not over.wait(0.05):
                        there.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            yield listening
        finally:
            over.set()
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE_SECONDS)


@pytest.mark.parametrize("case", ["lookup", "all silent", "silent, then a reply that drips", "a handshake that drips"])
def test_one_deadline_covers_lookup_every_address_and_the_whole_reply(
    monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    over = threading.Event()
    with ExitStack() as stack:
        stack.callback(over.set)
        silent = stack.enter_context(hole()).getsockname()
        slow = stack.enter_context(
            dripping(b"\x16\x03\x03\x40\x00" if "handshake" in case else b"HTTP/1.1 ")
        ).getsockname()
        addresses = {"all silent": [silent] * 8, "silent, then a reply that drips": [silent, slow]}.get(case, [slow])

        def look_up(*_: Any, **__: Any) -> list[Any]:
            if case == "lookup":
                over.wait(6)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        began = time.monotonic()
        scheme = "https" if "handshake" in case else "http"
        answer = post(f"{scheme}://hooks.internal/", {}, b"{}", 0.5, ["hooks.internal"])
        took = time.monotonic() - began
    assert answer.error == "TimeoutError: no reply within 0.5 s"
    assert took < 3, "each of these went on for four seconds and more"


def test_lookups_that_hang_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread is left behind by each: a resolver that never answers must not fill the process with them."""
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(PATIENCE_SECONDS) and [])
    try:
        for _ in range(6):
            assert "no reply within" in post("http://hooks.internal/", {}, b"{}", 0.05, ["hooks.internal"]).error
        assert sum(thread.name == "webhook-lookup" for thread in threading.enumerate()) <= 4
    finally:
        over.set()
    for thread in threading.enumerate():
        if thread.name == "webhook-lookup":
            thread.join(PATIENCE_SECONDS)


def test_410_disables_the_address_until_a_redelivery_succeeds(
    connection: psycopg.Connection, pool: Database, receive: Receive
) -> None:
    there = receive(410, 200)
    sending = Sending(pool)
    sending.send(there.url)
    assert sending.results() == ["given_up"]
    assert row(connection)[:3] == ("disabled", 1, 410)
    sending.send(there.url, "second")
    assert sending.results() == ["given_up"]
    assert len(there.got) == 1  # nothing more is sent there
    desk = WebhookDesk(sending.store.page, sending.store.redeliver, lambda *_: Posted(200))
    page = desk.page()
    assert [(each.status, each.disabled) for each in page.deliveries] == [("disabled", True)] * 2
    assert there.url not in str(page)
    (scope,) = connection.execute("select scope from search_outbox_controls").fetchone() or ("",)
    assert scope == f"webhook:{url_key(there.url)}", "whoever may read the controls learns no address"
    desk.redeliver(page.deliveries[0].id, ALICE)
    assert audit_counts(connection) == {"WEBHOOK_REDELIVERED": 1}
    assert sending.results() == ["delivered"]
    sending.send(there.url, "third")
    assert sending.results() == ["delivered"]


def test_a_private_address_that_is_not_allowed_is_refused_without_a_connection(
    connection: psycopg.Connection, pool: Database, receive: Receive
) -> None:
    there = receive(200)
    sending = Sending(pool, allowed=())
    https = there.url.replace("http://127.0.0.1", "https://localhost")
    for url in (there.url, https):
        sending.send(url, url)
    assert sending.results() == ["given_up", "given_up"]
    assert there.got == []
    errors = connection.execute("select error from search_outbox_webhook_deliveries order by created_at").fetchall()
    assert "plain http" in errors[0][0]
    assert "not public" in errors[1][0]


def test_every_address_of_a_name_is_checked_and_the_one_checked_is_used(
    monkeypatch: pytest.MonkeyPatch, receive: Receive
) -> None:
    there = receive(200)
    port = int(there.url.split(":")[2].split("/")[0])
    asked = []

    def answers(host: str, at: int, **_: Any) -> list[Any]:
        asked.append(host)
        public = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.215.14", at))
        private = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
        return [public, private] if host == "mixed.example" else [private]

    monkeypatch.setattr(socket, "getaddrinfo", answers)
    refused = post("https://mixed.example/", {}, b"{}", 1.0)
    assert refused.refused
    assert "not public" in refused.error
    pinned = post(f"http://hooks.internal:{port}/hook", {}, b"{}", 1.0, ["hooks.internal"])
    assert pinned.status == 200
    assert asked == ["mixed.example", "hooks.internal"]  # asked once: the address is not looked up a second time
    assert there.got[0][0]["host"] == f"hooks.internal:{port}"


def test_a_settled_replay_enqueues_one_delivery_in_its_own_transaction(
    connection: psycopg.Connection, pool: Database, receive: Receive
) -> None:
    there = receive(200)
    events(connection, 2)
    desk = replay_desk(pool, notices=lambda batch: replay_notices(batch, None), allowed_hosts=("127.0.0.1",))
    asked = ReplayRequest(actor=ALICE, reason="x", webhook_url=there.url)
    batch = desk.dispatch(desk.create(asked))
    connection.execute("update search_outbox_events set status = 'done'")
    assert desk.follow(batch.id).is_over
    assert Sending(pool).results() == ["delivered"]
    import json

    body = json.loads(there.got[0][1])
    assert body["type"] == "replay.settled"
    assert (body["data"]["id"], body["data"]["done"]) == (str(batch.id), 2)
