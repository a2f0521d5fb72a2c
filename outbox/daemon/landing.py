"""Makes a settle land, and the second look at newer deletes: giving up early would mean sending it all again, or a
document that came back for good. Waits a moment for rows that someone has locked. Retries nothing else."""

from collections.abc import Callable
from typing import Final, TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_random_exponential,
)
from tenacity.stop import stop_base

from outbox.daemon.lease import Holding
from outbox.errors import DatabaseDown

T = TypeVar("T")
# For rows that someone has locked: an UPDATE is over by then. Who holds one for longer is idle in a transaction, and
# the lane has others to see to; the row is sent again when its lease has run out. With 2 s and a locked row every five
# seconds, one lane of four was always waiting.
BUSY_SECONDS: Final = 0.5
INSIST_SECONDS: Final = 60.0  # a machine that wakes up finds its connections dead, and the network a while later


class _LeaseOver(stop_base):
    """Past the lease the rows are someone else's: then this process must not go on trying."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    def __call__(self, retry_state: RetryCallState) -> bool:
        return self._holding.lost or self._holding.remaining() < 0


def land(step: Callable[[], T], holding: Holding) -> T:
    """Repeat `step` while the database is away and the lease lives; the token makes a repetition harmless."""
    return _repeat(step, _LeaseOver(holding))


def until_free(step: Callable[[], bool], holding: Holding) -> None:
    """Repeat `step` until it says that nothing is locked any more, for a moment."""
    Retrying(
        retry=retry_if_result(lambda free: not free),
        wait=wait_random_exponential(multiplier=0.02, max=0.3),
        stop=stop_after_delay(BUSY_SECONDS) | _LeaseOver(holding),
        retry_error_callback=lambda _: None,
    )(step)


def insist(step: Callable[[], T]) -> T:
    """Repeat `step` while the database is away, lease or not, for a minute: for what only this process can do."""
    return _repeat(step, stop_after_delay(INSIST_SECONDS))


def _repeat(step: Callable[[], T], stop: stop_base) -> T:
    return Retrying(
        retry=retry_if_exception_type(DatabaseDown),
        wait=wait_random_exponential(multiplier=0.05, max=2.0),
        stop=stop,
        reraise=True,
    )(step)
