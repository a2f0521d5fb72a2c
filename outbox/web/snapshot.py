"""What the first page and `GET ops` show, read together and shared by all who watch. It counts nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from outbox.ops.audit import AuditDesk, AuditPage
from outbox.ops.events import Browse
from outbox.ops.failures import StatsDesk
from outbox.ops.status import Pulse, PulseDesk, QueueStatus, StatusDesk
from outbox.ops.stored import StoredEvent
from outbox.policy.filter import AuditFilter, EventFilter

RECENT: Final = 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`finished` goes as far back as the roll-up remembers; `pulse` is the last hour, minute by minute."""

    status: QueueStatus
    pulse: Mapping[str, Pulse]
    finished: Mapping[str, int]
    discarded: Mapping[str, int]
    recent_failures: Sequence[StoredEvent]
    recent_audit: AuditPage


def looker(
    status: StatusDesk, pulse: PulseDesk, stats: StatsDesk, browse: Browse, audit: AuditDesk
) -> Callable[[], Snapshot]:
    def look() -> Snapshot:
        return Snapshot(
            status=status.look(),
            pulse=pulse.look(),
            finished=stats.finished(),
            discarded=stats.store.discarded(),
            recent_failures=browse.page(EventFilter(), ("failed",), RECENT).events,
            recent_audit=audit.page(AuditFilter(), None, RECENT),
        )

    return look
