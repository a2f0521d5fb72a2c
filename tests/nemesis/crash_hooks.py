"""Owns the sixteen points at which the tests' worker kills itself with -9, by patching: the product has no hook."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

from outbox import fast_path
from outbox.daemon import fanout
from outbox.daemon.lifecycle import Lifecycle
from outbox.sink import exchange
from outbox.sink.client import Elastic
from outbox.sink.elastic import ElasticSink
from outbox.store import replays
from outbox.store.events import PostgresEvents
from outbox.store.fanouts import PostgresFanouts
from outbox.store.webhooks import PostgresWebhooks
from outbox.store.workers import Reclaims

SMALL_PAGE = 10  # so that a fan-out of a test has several
MARK = "crashed at: "
WAIT_R = 1  # psycopg: everything is sent, the answer is waited for


class Trap:
    """Snaps at the `after`-th time that it is stepped on."""

    def __init__(self, point: str, after: int) -> None:
        self._point = point
        self._left = after
        self._lock = threading.Lock()

    def step(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left == 0

    def snap(self) -> None:
        os.write(2, f"{MARK}{self._point}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)  # whichever thread is here gets no further


def before(owner: Any, name: str, trap: Trap) -> None:
    original = getattr(owner, name)

    def patched(*args: Any, **named: Any) -> Any:
        if trap.step():
            trap.snap()
        return original(*args, **named)

    setattr(owner, name, patched)


def after(owner: Any, name: str, trap: Trap, counts: Callable[[Any], bool] = lambda _: True) -> None:
    original = getattr(owner, name)

    def patched(*args: Any, **named: Any) -> Any:
        result = original(*args, **named)
        if counts(result) and trap.step():
            trap.snap()
        return result

    setattr(owner, name, patched)


@contextmanager
def answer_never_read(connection: Any, trap: Trap) -> Iterator[None]:
    """The statement goes out whole; where its answer would be waited for, the process ends."""
    usual = connection.wait

    def wait(generator: Any, *args: Any, **named: Any) -> Any:
        wanted = next(generator)
        while int(wanted) != WAIT_R:
            select.select([connection.fileno()], [connection.fileno()], [], 1)
            wanted = generator.send(3)
        trap.snap()

    connection.wait = wait
    try:
        yield
    finally:
        connection.wait = usual


def unanswered(owner: Any, name: str, trap: Trap, counts: Callable[[Any], bool] = lambda _: True) -> None:
    """For methods whose first argument is the connection; `counts` reads the second."""
    original = getattr(owner, name)

    def patched(self: Any, connection: Any, *args: Any, **named: Any) -> Any:
        if not counts(args[0]) or not trap.step():
            return original(self, connection, *args, **named)
        with answer_never_read(connection, trap):
            return original(self, connection, *args, **named)

    setattr(owner, name, patched)


class Unanswering:
    """A database whose next answer is never read."""

    def __init__(self, database: Any, trap: Trap) -> None:
        self._database, self._trap = database, trap

    @contextmanager
    def connection(self) -> Iterator[Any]:
        with self._database.connection() as connection, answer_never_read(connection, self._trap):
            yield connection


def unanswered_settle(trap: Trap) -> None:
    original = PostgresEvents._settle

    def patched(self: PostgresEvents, *args: Any) -> Any:
        if trap.step():
            self = copy(self)  # of this settle alone: other lanes go on
            self.database = Unanswering(self.database, trap)  # type: ignore[assignment]
        return original(self, *args)

    PostgresEvents._settle = patched  # type: ignore[method-assign, assignment]


def slow_writes(seconds: float) -> None:
    """A batch that stays in flight for a while, so that what happens meanwhile can be met."""
    original = ElasticSink.write

    def patched(*args: Any, **named: Any) -> Any:
        time.sleep(seconds)
        return original(*args, **named)

    ElasticSink.write = patched  # type: ignore[method-assign]


# Points that take more than a line


def before_send(trap: Trap) -> None:
    original = Elastic.call

    def call(self: Any, method: str, target: str, *args: Any, **named: Any) -> Any:
        if "/_bulk" in target and trap.step():
            trap.snap()
        return original(self, method, target, *args, **named)

    Elastic.call = call  # type: ignore[method-assign]


def mid_body(trap: Trap) -> None:
    usual = exchange._Socket.sendall

    def sendall(self: Any, data: Any, *args: Any) -> None:
        text = bytes(data)
        if b'"version_type"' in text and trap.step():
            usual(self, text[: len(text) // 2])
            trap.snap()
        usual(self, data, *args)

    exchange._Socket.sendall = sendall  # type: ignore[method-assign]


def after_apply(trap: Trap) -> None:
    """The answer lies in the socket, so Elasticsearch has done it; nobody reads it any more."""
    sending, receiving = exchange._Socket.sendall, exchange._Socket.recv_into
    armed = threading.local()

    def sendall(self: Any, data: Any, *args: Any) -> None:
        sending(self, data, *args)
        if b'"version_type"' in bytes(data):
            armed.now = trap.step()

    def recv_into(self: Any, *args: Any, **named: Any) -> int:
        if getattr(armed, "now", False):
            select.select([self], [], [], 10)
            trap.snap()
        return receiving(self, *args, **named)

    exchange._Socket.sendall, exchange._Socket.recv_into = sendall, recv_into  # type: ignore[method-assign]


def in_heartbeat(trap: Trap) -> None:
    slow_writes(2.5)  # each batch is renewed at least once: after a quarter of its 3 s, and beats are a second apart
    after(PostgresEvents, "renew", trap)


def in_drain(trap: Trap) -> None:
    slow_writes(1.0)
    claim, give_back = PostgresEvents.claim, Lifecycle._drain

    def claimed(self: Any, order: Any) -> Any:
        result = claim(self, order)
        if result.events and trap.step():
            os.kill(os.getpid(), signal.SIGTERM)
        return result

    def drain(self: Any, lanes: Any) -> Any:
        for lane in self.lanes:
            lane.wake.set()
        lanes[0].join(0.2)
        trap.snap()
        return give_back(self, lanes)

    PostgresEvents.claim, Lifecycle._drain = claimed, drain  # type: ignore[method-assign]


def before_page(trap: Trap) -> None:
    """The query has answered; nothing of it is written."""
    vars(fanout)["PAGE"] = SMALL_PAGE
    before(PostgresFanouts, "write", trap)


def after_page(trap: Trap) -> None:
    """Refreshes and cursor are committed; the fan-out is not settled."""
    vars(fanout)["PAGE"] = SMALL_PAGE
    after(PostgresFanouts, "write", trap, counts=bool)


# In the order of the reliability page.
HOOKS: dict[str, Callable[[Trap], None]] = {
    "claim sent": lambda trap: unanswered(PostgresEvents, "_claim", trap, counts=lambda order: not order.suspects),
    "claim committed": lambda trap: after(PostgresEvents, "claim", trap, counts=lambda claimed: bool(claimed.events)),
    "decode": lambda trap: before(fast_path, "sort_out", trap),
    "before send": before_send,
    "mid body": mid_body,
    "after apply before reply": after_apply,
    "after reply before ack": lambda trap: before(PostgresEvents, "settle", trap),
    "ack sent before commit reply": unanswered_settle,
    "after ack": lambda trap: after(PostgresEvents, "settle", trap),
    "in heartbeat": in_heartbeat,
    # The rows are moved, the transaction is not committed.
    "in reclaim": lambda trap: after(Reclaims, "_take_back", trap, counts=lambda moved: moved[0] > 0),
    # As soon as there are rows to write into the audit: they are moved, nothing is committed.
    "in replay": lambda trap: before(replays, "_item", trap),
    # The receiver has answered; that it did is not written down.
    "in webhook send": lambda trap: before(PostgresWebhooks, "delivered", trap),
    "in drain": in_drain,
    "before a page of a fan-out": before_page,
    "after a page of a fan-out": after_page,
}
POINTS = tuple(HOOKS)


def arm(point: str, after_times: int) -> None:
    HOOKS[point](Trap(point, after_times))
