"""Webhooks for people: what was delivered, once more please, a test, a signature checked. Daemons send the rest."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from outbox.errors import ConfigProblem, ConfigurationError, NotFound
from outbox.policy import inputs
from outbox.policy.audit import Actor
from outbox.policy.webhook import HookType, Posted, headers, message, url_key

Row = Mapping[str, Any]


Post = Callable[[str, Mapping[str, str], bytes], Posted]


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """One delivery. `to` is the host and a key of the address: its path is often a secret and is not shown."""

    id: UUID
    type: str
    to: str
    status: str
    attempts: int
    created_at: datetime
    last_attempt_at: datetime | None
    next_attempt_at: datetime | None
    delivered_at: datetime | None
    response_status: int | None
    error: str | None
    replay_id: UUID | None
    redelivered_by: str | None
    disabled: bool
    body: bytes


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    deliveries: Sequence[DeliveryRow]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Tried:
    """How a test went: the receiver's status, or why there is none."""

    ok: bool
    to: str
    status: int | None
    error: str
    duration_seconds: float


@dataclass(frozen=True, slots=True)
class WebhookDesk:
    rows: Callable[[datetime, UUID, int], Sequence[Row]]
    queue_again: Callable[[UUID, Actor, str | None], Row | None]
    post: Post
    url: str | None = None
    secret: str | None = None

    def page(self, cursor: str | None = None, limit: int = 50) -> DeliveryPage:
        """Newest first."""
        limit = inputs.whole("limit", limit, 1, 500)
        found = [_row(row) for row in self.rows(*inputs.read_cursor(cursor), limit + 1)]
        more = inputs.cursor(found[limit - 1].created_at, found[limit - 1].id) if len(found) > limit else None
        return DeliveryPage(found[:limit], more)

    def redeliver(self, id: UUID, actor: Actor, reason: str | None = None) -> None:
        """Sent again by the next pass of a daemon, also where the address is disabled; success enables it again."""
        actor = inputs.actor(actor.name, actor.source, actor.role)
        if self.queue_again(id, actor, None if reason is None else inputs.reason(reason)) is None:
            raise NotFound(f"delivery {id}")

    def test(self) -> Tried:
        """Sends one message of type `webhook.test`, now, from here."""
        if self.url is None:
            remedy = "Give the receiver's address, such as https://example.com/hooks/outbox."
            raise ConfigurationError([ConfigProblem("OUTBOX_WEBHOOK_URL", "is not set", remedy)])
        body = json.dumps(message(HookType.TEST, datetime.now(UTC), {"host": urlsplit(self.url).hostname})).encode()
        signed = headers(self.secret, f"msg_{uuid4().hex}", int(time.time()), body)
        began = time.monotonic()
        answer = self.post(self.url, signed, body)
        ok = answer.status is not None and 200 <= answer.status < 300
        error = answer.error or ("" if ok else f"answered {answer.status}")
        return Tried(ok, url_key(self.url), answer.status, error, time.monotonic() - began)


def _row(row: Row) -> DeliveryRow:
    names = [name for name in DeliveryRow.__slots__ if name != "to"]
    return DeliveryRow(to=row["sent_to"], **{name: row[name] for name in names})
