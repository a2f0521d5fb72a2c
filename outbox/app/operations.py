"""Joins what people do with failures: replays, plans, discards, audit, statistics, pruning, webhooks.

Elasticsearch is asked only for a plan's superseded count.
"""

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from outbox.config import Settings
from outbox.ops.audit import AuditDesk
from outbox.ops.discard import DiscardDesk
from outbox.ops.failures import FailureDesk, StatsDesk
from outbox.ops.replay.desk import ReplayDesk
from outbox.ops.replay.plan import Planner, Versions
from outbox.ops.retention import EventRetention, Retention
from outbox.ops.webhook import WebhookDesk
from outbox.policy.replay import ReplayBatch
from outbox.policy.webhook import Notice, Posted, replay_notices
from outbox.sink.client import Elastic
from outbox.sink.client import connect as connect_elastic
from outbox.sink.documents import versions
from outbox.sink.webhook import post
from outbox.store.acts import PostgresDiscards
from outbox.store.audit import PostgresAudit
from outbox.store.failures import PostgresFailures, PostgresStatistics
from outbox.store.pool import Database, opened
from outbox.store.replays import PostgresReplays
from outbox.store.retention import PostgresRetention
from outbox.store.webhooks import PostgresWebhooks


@dataclass(frozen=True, slots=True)
class Operations:
    replays: ReplayDesk
    planner: Planner
    failures: FailureDesk
    discards: DiscardDesk
    audit: AuditDesk
    stats: StatsDesk
    prune: Retention
    webhooks: WebhookDesk


@contextmanager
def open_operations(settings: Settings, *, application: str = "outbox cli") -> Iterator[Operations]:
    """For one command. Raises DatabaseDown at once where nobody answers."""
    with (
        opened(settings.database.dsn, size=2, application=application) as database,
        closing(connect_elastic(settings.elastic, lanes=1)) as elastic,
    ):
        yield operations(settings, database, elastic)


def operations(settings: Settings, database: Database, elastic: Elastic | None = None) -> Operations:
    owner = f"{socket.gethostname()}-{os.getpid()}"
    audit, failures = PostgresAudit(database), PostgresFailures(database)
    retention, rows = PostgresRetention(database), settings.retention.prune_batch_size
    audit_desk = AuditDesk(audit)
    discards, deliveries = PostgresDiscards(database), PostgresWebhooks(database)
    replays = PostgresReplays(database, owner=owner, notices=notices(settings))
    limits = settings.replay
    return Operations(
        replays=ReplayDesk(replays, settings.webhook.allowed_hosts, limits.max_polls, limits.max_start_per_batch),
        planner=Planner(failures, None if elastic is None else held_versions(settings, elastic)),
        failures=FailureDesk(failures),
        discards=DiscardDesk(discards.discard, discards.flush),
        audit=audit_desk,
        stats=StatsDesk(PostgresStatistics(database)),
        prune=Retention(EventRetention(retention.step, retention.preview, audit, rows), audit_desk),
        webhooks=WebhookDesk(
            deliveries.page, deliveries.redeliver, poster(settings), settings.webhook.url, secret(settings)
        ),
    )


def notices(settings: Settings) -> Callable[[ReplayBatch], Sequence[Notice]]:
    return lambda batch: replay_notices(batch, settings.webhook.url)


def poster(settings: Settings) -> Callable[[str, Mapping[str, str], bytes], Posted]:
    hook = settings.webhook
    return lambda url, headers, body: post(url, headers, body, hook.timeout_seconds, hook.allowed_hosts)


def held_versions(settings: Settings, elastic: Elastic) -> Versions:

    address = settings.naming.address

    def read(rows: Sequence[Mapping[str, Any]]) -> Sequence[int | None] | None:
        return versions(elastic, [address(row["entity_type"], row["entity_id"], row["routing"]) for row in rows])

    return read


def secret(settings: Settings) -> str | None:
    return None if settings.webhook.secret is None else settings.webhook.secret.get_secret_value()
