"""Moves and follows the replays that this console has created, behind the requests that asked for them.

A console that ends lets go of them: the next daemon goes on, as it does after a killed command.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from uuid import UUID

from outbox.errors import OutboxError
from outbox.ops.replay.desk import Created, ReplayDesk

AT_ONCE: Final = 3  # a fourth waits; its lease may run out meanwhile, and a daemon takes it
LOOK_SECONDS: Final = 0.5
log = logging.getLogger("outbox.web")


class Dispatching:
    def __init__(self, replays: ReplayDesk) -> None:
        self._replays = replays
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._followed: set[UUID] = set()
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="replay")
        self._follower = threading.Thread(target=self._follow, name="replay-follower", daemon=True)
        self._follower.start()

    def start(self, created: Created) -> None:
        """Returns at once."""
        if created.lease is not None:
            self._pool.submit(self._run, created)

    def run(self, created: Created) -> None:
        """Returns when the rows have moved: for a single event, whose state is the answer."""
        self._replays.dispatch(created, stop=self._stop)
        self.follow(created.batch.id)

    def follow(self, id: UUID) -> None:
        self._followed.add(id)
        self._wake.set()

    def close(self) -> None:
        """Lets go of what is under way."""
        self._stop.set()
        self._wake.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._follower.join(5)

    def _run(self, created: Created) -> None:
        try:
            self.run(created)
        except OutboxError as error:
            log.warning("replay %s was left to a daemon: %s", created.batch.id, error.detail or error.message)

    def _follow(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(None if not self._followed else LOOK_SECONDS)
            self._wake.clear()
            for id in tuple(self._followed):
                self._look(id)

    def _look(self, id: UUID) -> None:
        """One look, if it is due. A look that fails is never a failed batch."""
        try:
            if self._replays.follow(id).is_over:
                self._followed.discard(id)
        except OutboxError as error:
            log.warning("replay %s could not be looked at: %s", id, error.detail or error.message)
            self._stop.wait(LOOK_SECONDS)
