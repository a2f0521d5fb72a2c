"""Notifies receivers: turns facts into deliveries, and sends those that are due. Never delays a batch."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from outbox.errors import OutboxError
from outbox.facts import Announce, AttemptFailed, Beat, DatabaseLost, Fact, SinkPaused, SinkResumed, WebhookTried
from outbox.policy.webhook import (
    GONE,
    HookType,
    Notice,
    Posted,
    WebhookDelivery,
    headers,
    message,
    retry_delay_seconds,
    url_key,
)

if TYPE_CHECKING:
    from outbox.store.webhooks import PostgresWebhooks

IDLE_SECONDS: Final = 0.5
MOST_GROUPS: Final = 500
MOST_SAMPLES: Final = 10
MOST_WAITING: Final = 1_000
MOST_FLAPS: Final = 10  # pauses of one target that are sent per minute; then the last of them, in the next


Post = Callable[[str, Mapping[str, str], bytes], Posted]


@dataclass(slots=True)
class _Group:
    first: AttemptFailed
    count: int = 0
    entity_types: set[str] = field(default_factory=set)
    samples: list[str] = field(default_factory=list)

    def add(self, fact: AttemptFailed) -> None:
        self.count += 1
        if len(self.entity_types) < MOST_SAMPLES:
            self.entity_types.add(fact.event.entity_type)
        if len(self.samples) < MOST_SAMPLES:
            self.samples.append(str(fact.event.id))

    def data(self, fingerprint: str) -> dict[str, Any]:
        failure = self.first.failure
        return {
            "fingerprint": fingerprint,
            "error_reason": failure.reason,
            "error_code": failure.code,
            "failure_type": failure.reason.failure_type,
            "dead_reason": self.first.dead_reason,
            "error": failure.error,
            "count": self.count,
            "entity_types": sorted(self.entity_types),
            "sample_ids": self.samples,
        }


Pausing = tuple[datetime, SinkPaused | SinkResumed]


class Notices:
    """Subscribe `handle`: it only takes notes. `flush` makes deliveries of them, one per minute and fingerprint."""

    def __init__(self, store: PostgresWebhooks, url: str | None, projection: str) -> None:
        self._store = store
        self._url = url
        self._projection = projection
        self._lock = threading.Lock()
        self._groups: dict[str, _Group] = {}
        self._pauses: list[Pausing] = []
        self._minute = ""
        self._flaps: Counter[tuple[HookType, str]] = Counter()  # sent in this minute

    def handle(self, fact: Fact) -> None:
        if self._url is None:
            return
        if isinstance(fact, AttemptFailed) and fact.retry_seconds is None:
            with self._lock:
                self._note(fact)
        elif isinstance(fact, (SinkPaused, SinkResumed)):
            with self._lock:
                self._pauses = [*self._pauses[-MOST_WAITING:], (datetime.now(UTC), fact)]

    def _note(self, fact: AttemptFailed) -> None:
        fingerprint = fact.failure.fingerprint or fact.failure.reason
        if fingerprint in self._groups or len(self._groups) < MOST_GROUPS:
            self._groups.setdefault(fingerprint, _Group(fact)).add(fact)

    def flush(self, *, last: bool = False) -> None:
        """Groups whose minute is taken already, by us or another daemon, wait for the next one; `last`: there is no
        next one, and all is written."""
        with self._lock:
            groups, self._groups = self._groups, {}
            pauses, self._pauses = self._pauses, []
        if not groups and not pauses:
            return
        minute = uuid4().hex if last else datetime.now(UTC).strftime("%Y-%m-%dT%H:%M")
        flaps, held = self._numbered(pauses, minute)
        try:
            written = self._store.enqueue([self._failed(name, group, minute) for name, group in groups.items()])
            self._store.enqueue(flaps)
        except OutboxError:
            self._keep(groups, pauses)
            raise
        self._keep({name: group for (name, group), new in zip(groups.items(), written, strict=True) if not new}, held)

    def _numbered(self, pauses: Sequence[Pausing], minute: str) -> tuple[list[Notice], list[Pausing]]:
        """What is sent now, and what waits for the next minute: the last change of each target. Daemons that meet the
        same pauses count them alike, so that each is sent once; a target that flaps within a minute loses none."""
        if minute != self._minute:
            self._minute = minute
            self._flaps.clear()
        now: list[Notice] = []
        held: dict[str, Pausing] = {}
        for at, fact in pauses:
            kind = HookType.SINK_PAUSED if isinstance(fact, SinkPaused) else HookType.SINK_RESUMED
            number = self._flaps[kind, fact.target]
            if number < MOST_FLAPS:
                self._flaps[kind, fact.target] += 1
                now.append(self._paused(kind, at, fact, f"{minute}.{number}" if number else minute))
            else:
                held[fact.target] = (at, fact)
        return now, list(held.values())

    def _keep(self, groups: dict[str, _Group], pauses: Sequence[Pausing]) -> None:
        with self._lock:
            for name, group in groups.items():
                newer = self._groups.get(name)
                if newer is not None:
                    group.count += newer.count
                self._groups[name] = group
            self._pauses = [*pauses, *self._pauses]

    def _failed(self, fingerprint: str, group: _Group, when: str) -> Notice:
        return self._notice(HookType.EVENTS_FAILED, datetime.now(UTC), group.data(fingerprint), fingerprint, when)

    def _paused(self, kind: HookType, at: datetime, fact: SinkPaused | SinkResumed, when: str) -> Notice:
        data: dict[str, Any] = {"target": fact.target, "cause": fact.cause}
        if isinstance(fact, SinkPaused):
            data["detail"] = fact.detail
        else:
            data["paused_seconds"] = fact.paused_seconds
        return self._notice(kind, at, data, fact.target, when)

    def _notice(self, kind: HookType, at: datetime, data: Mapping[str, Any], name: str, when: str) -> Notice:
        """`when`: what is sent of one name under it is sent once, whichever daemons have met it."""
        assert self._url is not None
        body = message(kind, at, {"projection": self._projection, **data})
        return Notice(kind, self._url, body, f"{kind}:{name}:{when}:{url_key(self._url)}")


@dataclass(slots=True)
class WebhookSender:
    store: PostgresWebhooks
    notices: Notices
    post: Post
    secret: str | None
    timeout_seconds: float
    quick_retries: int
    announce: Announce

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(IDLE_SECONDS):
            self.pass_once(stop)
        self._write_all()

    def _write_all(self) -> None:
        """What is written, other daemons send."""
        try:
            self.notices.flush(last=True)
        except OutboxError as error:
            self.announce(DatabaseLost("webhooks", error.detail))

    def pass_once(self, stop: threading.Event | None = None) -> None:
        """All that is due, one after the other; a receiver that hangs costs the next one its timeout, nobody else."""
        try:
            self.announce(Beat("webhooks"))
            self.notices.flush()
            while not (stop and stop.is_set()) and (delivery := self.store.take(self.timeout_seconds + 30)):
                self.announce(Beat("webhooks"))
                self._send(delivery)
        except OutboxError as error:
            self.announce(DatabaseLost("webhooks", error.detail))

    def _send(self, delivery: WebhookDelivery) -> None:
        if delivery.refused:
            self.store.close(delivery, "disabled", None, "it has answered 410 before; a redelivery asks again")
            self.announce(WebhookTried(delivery.type, "given_up", delivery.attempts, "disabled"))
            return
        signed = headers(self.secret, f"msg_{delivery.id.hex}", int(time.time()), delivery.body)
        answer = self.post(delivery.url, signed, delivery.body)
        if answer.status is not None and 200 <= answer.status < 300:
            self.store.delivered(delivery, answer.status)
            self.announce(WebhookTried(delivery.type, "delivered", delivery.attempts))
            return
        error = answer.error or f"answered {answer.status}"
        result = self._failed(delivery, answer, error)
        self.announce(WebhookTried(delivery.type, result, delivery.attempts, error))

    def _failed(self, delivery: WebhookDelivery, answer: Posted, error: str) -> str:
        delay = retry_delay_seconds(delivery.attempts, self.quick_retries)
        if answer.status != GONE and not answer.refused and delay is not None:
            self.store.put_off(delivery, max(delay, answer.retry_after_seconds), answer.status, error)
            return "failed"
        self.store.close(delivery, "disabled" if answer.status == GONE else "given_up", answer.status, error)
        return "given_up"
