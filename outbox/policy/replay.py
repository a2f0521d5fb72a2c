"""A replay's states, when it is checked, and when it is over. Pure: times and counts are handed in."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID


class ReplayStatus(StrEnum):
    QUEUED = "queued"
    DISPATCHING = "dispatching"
    FOLLOWING = "following"
    SETTLED = "settled"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


TERMINAL: Final = frozenset({ReplayStatus.SETTLED, ReplayStatus.FAILED, ReplayStatus.TIMEOUT, ReplayStatus.CANCELLED})
DEFAULT_LIMIT: Final = 100
MOST_ROWS: Final = 1_000_000  # `--all`: more are a second replay
DEFAULT_RATE: Final = 1_000.0
ASK_ABOVE: Final = 1_000
# Renewed by every step. Long enough for a slow step, short enough that a killed creator's batch soon goes on.
LEASE_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class ReplayBatch:
    """One replay as it stands. `discarded` ended so by a person's hand; done + failed_again + still_open + discarded
    are the replayed rows."""

    id: UUID
    client_id: str | None
    status: ReplayStatus
    requested_by: str
    requested_reason: str
    role: str | None
    source: str
    filter: dict[str, object] | None
    rate: float | None
    webhook_to: str | None  # its own webhook, as `url_key` names it
    total: int
    replayed: int
    skipped: int
    done: int
    failed_again: int
    still_open: int
    created_at: datetime
    dispatched_at: datetime | None
    settled_at: datetime | None
    updated_at: datetime
    owner: str | None
    poll_count: int
    last_poll_at: datetime | None
    next_poll_at: datetime | None
    cancelled_by: str | None
    failure_type: str | None
    reason: str | None
    webhook_url: str | None = field(default=None, repr=False)  # only where it is about to be used: a secret

    @property
    def is_over(self) -> bool:
        return self.status in TERMINAL

    @property
    def discarded(self) -> int:
        return max(self.replayed - self.done - self.failed_again - self.still_open, 0)

    @property
    def left(self) -> int:
        """Pinned rows that no step has come to yet."""
        return self.total - self.replayed - self.skipped

    @property
    def explicit(self) -> bool:
        """Ids were given one by one: discarded events come back too."""
        return bool(self.filter and self.filter.get("ids"))


class ReplayLease(NamedTuple):
    """The right to move one batch, until it runs out or someone else takes it."""

    id: UUID
    token: UUID


class Dispatched(NamedTuple):
    replayed: int
    skipped: int
    left: int


class CheckVerdict(NamedTuple):
    status: ReplayStatus
    poll_count: int
    delay_seconds: float
    reason: str | None = None


def check_delay_seconds(poll_count: int) -> float:
    """5 s to the first check, 15 s to the next two, then 30 s. Progress starts the count again."""
    return 5.0 if poll_count == 0 else 15.0 if poll_count <= 2 else 30.0


def judge_check(poll_count: int, ended: int, still_open: int, max_polls: int) -> CheckVerdict:
    """`ended` rows have come to an end since the last check."""
    if still_open == 0:
        return CheckVerdict(ReplayStatus.FOLLOWING, poll_count, 0.0)
    if ended:
        return CheckVerdict(ReplayStatus.FOLLOWING, 0, check_delay_seconds(0))
    checks = poll_count + 1
    if checks >= max_polls:
        return CheckVerdict(ReplayStatus.TIMEOUT, checks, 0.0, f"MAX_POLL_COUNT_REACHED:{max_polls}")
    return CheckVerdict(ReplayStatus.FOLLOWING, checks, check_delay_seconds(checks))


def step_rows(rate: float, most: int) -> int:
    """Rows of one step: a quarter of a second's worth, so that the rate is even and a cancel comes soon."""
    return max(1, min(most, round(rate / 4)))


class ReplayPace:
    """When the next rows may move. Time that was lost is not made up for: the rate is never exceeded."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._next = 0.0

    def wait_seconds(self, now: float) -> float:
        return max(self._next - now, 0.0)

    def moved(self, rows: int, now: float) -> None:
        self._next = max(self._next, now) + rows / self._rate


def exit_code(batch: ReplayBatch) -> int:
    """What `--wait` exits with: 0 all done, 3 partly or not known, 1 nothing came of it."""
    if batch.status is ReplayStatus.FAILED:
        return 1
    if batch.status is not ReplayStatus.SETTLED:
        return 3
    if batch.done == batch.total:
        return 0
    return 3 if batch.done else 1
