"""Makes a settle land, and the second look at newer deletes: giving up early would mean sending it all again, or a
document that came back for good. Retries nothing else."""

from collections.abc import Callable
from typing import Final, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential
from tenacity.stop import stop_base

from outbox.daemon.lease import Holding
from outbox.errors import DatabaseDown

T = TypeVar("T")
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
