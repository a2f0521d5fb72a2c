"""Makes a settle land: giving up early would only mean sending it all again. Retries nothing else."""

from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential
from tenacity.stop import stop_base

from outbox.daemon.lease import Holding
from outbox.errors import DatabaseDown

T = TypeVar("T")


class _LeaseOver(stop_base):
    """Past the lease the rows are someone else's: then this process must not go on trying."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    def __call__(self, retry_state: RetryCallState) -> bool:
        return self._holding.lost or self._holding.remaining() < 0


def land(step: Callable[[], T], holding: Holding) -> T:
    """Repeat `step` while the database is away and the lease lives; the token makes a repetition harmless."""
    return Retrying(
        retry=retry_if_exception_type(DatabaseDown),
        wait=wait_random_exponential(multiplier=0.05, max=2.0),
        stop=_LeaseOver(holding),
        reraise=True,
    )(step)
