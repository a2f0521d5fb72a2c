"""Waits for events to be settled: one reader for all who wait in this process, by polling, and at a NOTIFY where there
is one. Changes no event."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from outbox.errors import DatabaseDown, DependencyDown, OutboxError
from outbox.policy.event import Status
from outbox.ports import EntityWait

# The first reading of a waiter comes at once, the next ones after half of the time that it has waited already, within
# these bounds: 50 readings per second at most, however many wait, which is 2 % of a connection's time. One reading of a
# single event takes 0.35 to 0.39 ms, `select 1` takes 0.08 (the fastest of 400 each, by turns, in three rounds at load
# 18, PostgreSQL on the same machine).
FASTEST_SECONDS: Final = 0.02
SLOWEST_SECONDS: Final = 0.25
# Where a settle notifies, and for what no settle does: a discard, or an event that was not committed when asked for.
LISTENING_SECONDS: Final = 1.0
LINGER_SECONDS: Final = 60.0  # the listener's connection, after the last call: to open one takes some milliseconds
# Past the end of a call's time, for its last reading, which may have to connect first.
GRACE_SECONDS: Final = 2.0
MOST_WAITERS: Final = 1000

Subject = UUID | EntityWait  # an event, or all that is open of an entity
Statuses = Callable[[Collection[Subject]], Mapping[Subject, str]]
Notified = Callable[[float], bool]  # waits so many seconds for a NOTIFY; False when none came


class TooManyWaiters(DependencyDown):
    """Too many callers wait for events in this process already. Ask without waiting, or again in a moment."""


@dataclass(eq=False, slots=True)
class Waiter:
    """One caller. `answer` is the event's state when it is settled or the time is over; None if it was never seen."""

    id: Subject
    since: float
    until: float
    answer: Future[Status | None] = field(default_factory=Future)


class SettleWatch:
    """Its threads run only while someone waits; that of the listener some time longer."""

    def __init__(
        self,
        statuses: Statuses,
        listen: Callable[[], AbstractContextManager[Notified]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._statuses = statuses
        self._listen = listen
        self._clock = clock
        self._lock = threading.Lock()
        self._waiters: set[Waiter] = set()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._reader: threading.Thread | None = None
        self._listener: threading.Thread | None = None
        self._hears = False
        self._listens_from = self._asked = clock()

    def submit(self, id: Subject, seconds: float) -> Future[Status | None]:
        """Returns at once. The future ends shortly after `seconds` at the latest; if PostgreSQL does not answer, with
        the time limit of a reading."""
        now = self._asked = self._clock()
        waiter = Waiter(id, now, now + seconds)
        with self._lock:
            if len(self._waiters) >= MOST_WAITERS:
                raise TooManyWaiters(f"{MOST_WAITERS} wait")
            self._waiters.add(waiter)
            self._start()
        self._wake.set()
        return waiter.answer

    def wait(self, id: Subject, seconds: float) -> Status | None:
        """At most GRACE_SECONDS longer than `seconds`, also if PostgreSQL does not answer."""
        waiting = self.submit(id, seconds)
        try:
            return waiting.result(seconds + GRACE_SECONDS)
        except TimeoutError:
            waiting.cancel()
            raise _unanswered(seconds) from None

    async def awaited(self, id: Subject, seconds: float) -> Status | None:
        waiting = asyncio.wrap_future(self.submit(id, seconds))
        try:
            return await asyncio.wait_for(waiting, seconds + GRACE_SECONDS)
        except TimeoutError:
            raise _unanswered(seconds) from None

    def close(self) -> None:
        """Whoever still waits gets the last known state."""
        self._stop.set()
        self._wake.set()
        for thread in (self._reader, self._listener):
            if thread is not None:
                thread.join(5)

    def _start(self) -> None:
        if self._reader is None or not self._reader.is_alive():
            self._reader = threading.Thread(target=self._read, name="settle-reader", daemon=True)
            self._reader.start()
        if self._listen is None or self._clock() < self._listens_from:
            return
        if self._listener is None or not self._listener.is_alive():
            self._listener = threading.Thread(target=self._hear, name="settle-listener", daemon=True)
            self._listener.start()

    def _read(self) -> None:
        while self._some_wait():
            try:
                self._answer(self._statuses({waiter.id for waiter in self._present()}))
            except Exception as error:
                self._fail(error)
            self._stop.wait(FASTEST_SECONDS)
            self._wake.wait(self._pause())
            self._wake.clear()

    def _some_wait(self) -> bool:
        """Under the lock of `submit`, which starts another reader once this one is gone."""
        with self._lock:
            if not self._waiters:
                self._reader = None
            return bool(self._waiters)

    def _present(self) -> list[Waiter]:
        with self._lock:
            return list(self._waiters)

    def _answer(self, found: Mapping[Subject, str]) -> None:
        now = self._clock()
        for waiter in self._present():
            status = Status(found[waiter.id]) if waiter.id in found else None
            over = now >= waiter.until or self._stop.is_set()
            if over or (status is not None and status.is_settled):
                self._leave(waiter)
                if waiter.answer.set_running_or_notify_cancel():
                    waiter.answer.set_result(status)
            elif waiter.answer.cancelled():
                self._leave(waiter)

    def _fail(self, error: Exception) -> None:
        for waiter in self._present():
            self._leave(waiter)
            if waiter.answer.set_running_or_notify_cancel():
                waiter.answer.set_exception(error)

    def _leave(self, waiter: Waiter) -> None:
        with self._lock:
            self._waiters.discard(waiter)

    def _pause(self) -> float:
        """Until the next reading: soon for those who have just come, and never past someone's end."""
        now = self._clock()
        waiting = self._present()
        if not waiting or self._stop.is_set():
            return 0.0
        youngest = min(now - waiter.since for waiter in waiting)
        usual = LISTENING_SECONDS if self._hears else min(max(youngest / 2, FASTEST_SECONDS), SLOWEST_SECONDS)
        return max(0.0, min(usual - FASTEST_SECONDS, min(waiter.until for waiter in waiting) - now))

    def _hear(self) -> None:
        """Without it everything works, only later. If it breaks, the next call tries again; if it cannot be opened,
        the next call after LINGER_SECONDS: a server that refuses is not asked for each call."""
        assert self._listen is not None
        self._listens_from = self._clock() + LINGER_SECONDS
        try:
            with self._listen() as notified:
                self._listens_from = self._clock()
                self._hears = True
                self._wake.set()  # what was settled before it listened
                while not self._stop.is_set() and self._clock() - self._asked < LINGER_SECONDS:
                    if notified(LISTENING_SECONDS):
                        self._wake.set()
        except OutboxError:
            pass
        finally:
            self._hears = False


def _unanswered(seconds: float) -> DatabaseDown:
    return DatabaseDown(f"no answer within {seconds:g} s and {GRACE_SECONDS:g} more")
