"""What the console needs from `ops`, one drawer a topic. The composition root fills it; nothing is built here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outbox.ops.browse import Browse
from outbox.ops.comparison import Comparison
from outbox.ops.pauses import Pauses
from outbox.ops.status import Status
from outbox.ports import Finding
from outbox.web.sampler import Shared


@dataclass(frozen=True, slots=True)
class Services:
    status: Shared[Status]
    findings: Shared[Sequence[Finding]]
    browse: Browse
    comparison: Comparison
    pauses: Pauses
