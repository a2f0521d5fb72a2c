"""Waits until every live worker obeys a rebuild's newest word and earlier batches are over. Touches no index."""

import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from outbox.ops.rebuild_errors import HeldByAnother
from outbox.policy.rebuild import Rebuild
from outbox.ports import Clock

LOOK_SECONDS: Final = 0.25
SAY_EVERY_SECONDS: Final = 5.0
RENEW_SECONDS: Final = 3.0
RECLAIM_SECONDS: Final = 2.0


class Workers(Protocol):
    def renew(self, id: int) -> bool: ...
    def unconfirmed(self, revision: int) -> Sequence[str]: ...
    def now(self) -> datetime: ...
    def older_leases(self, moment: datetime) -> Sequence[tuple[str, int]]: ...


@dataclass(slots=True)
class Crew:
    workers: Workers
    reclaim: Callable[[], object]  # takes back leases that ran out: without a daemon nobody else would
    say: Callable[[str], None] = lambda _: None
    clock: Clock = time.monotonic
    rest: Callable[[float], None] = time.sleep
    _next_renewal: float = 0.0
    _next_word: float = 0.0
    _next_reclaim: float = 0.0

    def wait(self, rebuild: Rebuild) -> None:
        """First the confirmations, then the batches that were claimed before the last of them."""
        self._next_word = self.clock() + 1.0
        while late := self.workers.unconfirmed(rebuild.revision):
            self._turn(rebuild, f"waiting for {', '.join(late[:5])} to confirm")
        moment = self.workers.now()
        while held := self.workers.older_leases(moment):
            self._turn(rebuild, f"waiting for {sum(n for _, n in held)} batches from before to end")
            self._take_back()

    def _turn(self, rebuild: Rebuild, told: str) -> None:
        self.renew(rebuild)
        if self.clock() >= self._next_word:
            self._next_word = self.clock() + SAY_EVERY_SECONDS
            self.say(told)
        self.rest(LOOK_SECONDS)

    def _take_back(self) -> None:
        if self.clock() >= self._next_reclaim:
            self._next_reclaim = self.clock() + RECLAIM_SECONDS
            self.reclaim()

    def renew(self, rebuild: Rebuild) -> None:
        """Keeps the lease, at most every three seconds. Raises where someone else has it by now."""
        if self.clock() < self._next_renewal:
            return
        self._next_renewal = self.clock() + RENEW_SECONDS
        if not self.workers.renew(rebuild.id):
            raise HeldByAnother("it was taken over")


def new_owner() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{os.urandom(3).hex()}"


def dead_owner(owner: str | None) -> str | None:
    """The owner, if it was a process of this host that is gone: a killed rebuild goes on at once."""
    host, _, rest = (owner or "").partition(":")
    pid = rest.partition(":")[0]
    if host != socket.gethostname() or not pid.isdigit() or _alive(int(pid)):
        return None
    return owner


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
