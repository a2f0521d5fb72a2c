"""What the console needs from `ops`, one drawer a topic. The composition root fills it; nothing is built here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outbox.ops.audit import AuditDesk
from outbox.ops.discard import DiscardDesk
from outbox.ops.events import Browse, Payloads
from outbox.ops.failures import FailureDesk, FailureGroup, Stats, StatsDesk
from outbox.ops.pauses import Pauses
from outbox.ops.reindex.verify import Verify
from outbox.ops.replay.desk import ReplayDesk
from outbox.ops.replay.plan import Planner
from outbox.ops.reprojection import ProjectionDesk
from outbox.ops.webhook import WebhookDesk
from outbox.policy.rebuild import Rebuild
from outbox.ports import Finding
from outbox.web.dispatching import Dispatching
from outbox.web.sampler import Shared
from outbox.web.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Services:
    """`status`, `day`, `groups` and `findings` are shared looks: many open pages cost the database no more than one.
    `exports` is the audit over connections of its own."""

    status: Shared[Snapshot]
    day: Shared[Stats]
    groups: Shared[Sequence[FailureGroup]]
    findings: Shared[Sequence[Finding]]
    browse: Browse
    payloads: Payloads
    failures: FailureDesk
    planner: Planner
    replays: ReplayDesk
    dispatching: Dispatching
    discards: DiscardDesk
    pauses: Pauses
    projection: ProjectionDesk
    stats: StatsDesk
    audit: AuditDesk
    exports: AuditDesk
    webhooks: WebhookDesk
    verify: Verify
    rebuilds: Callable[[int], Sequence[Rebuild]]
