"""Joins what a daemon does beside its lanes: replays whose creator is gone, webhooks, pruning."""

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final

from outbox.app.operations import notices, poster, secret
from outbox.config import Settings
from outbox.daemon.pruner import Forget, Pruner
from outbox.daemon.replay_chore import ReplayChore
from outbox.daemon.webhooks import Notices, WebhookSender
from outbox.facts import Announcer
from outbox.ports import Clock
from outbox.store.acts import PostgresDiscards
from outbox.store.audit import PostgresAudit
from outbox.store.event_log import PostgresEventLog
from outbox.store.failures import PostgresStatistics
from outbox.store.pool import Database
from outbox.store.replays import PostgresReplays
from outbox.store.retention import PostgresRetention
from outbox.store.webhooks import PostgresWebhooks

MINUTES_KEPT: Final = timedelta(days=2)
HOURS_KEPT: Final = timedelta(days=90)
WORKERS_KEPT: Final = timedelta(days=1)  # that stopped, or fell silent
# After the delete there: no worker that noted the place writes so late (OUTBOX_MAX_PROCESSING_SECONDS is 600).
PLACES_KEPT: Final = timedelta(hours=1)
ENDED_KEPT: Final = timedelta(days=30)  # replays and deliveries, where the audit itself is kept for ever


def chores(
    settings: Settings, database: Database, announce: Announcer, clock: Clock
) -> dict[str, Callable[[threading.Event], None]]:
    replays = ReplayChore(
        PostgresReplays(database, owner=settings.worker.id, notices=notices(settings)),
        PostgresDiscards(database).tell,
        settings.replay,
        announce,
        clock,
    )
    deliveries = PostgresWebhooks(database)
    told = Notices(deliveries, settings.webhook.url, settings.projection)
    announce.subscribe(told.handle)
    hook = settings.webhook
    sender = WebhookSender(
        deliveries, told, poster(settings), secret(settings), hook.timeout_seconds, hook.retries, announce
    )
    pruner = Pruner(
        PostgresRetention(database).step,
        PostgresAudit(database),
        settings.retention.prune_interval_seconds,
        announce,
        clock,
        settings.worker.id,
        events_days=settings.retention.days,
        audit_days=settings.retention.audit_ttl_days,
        rows_a_step=settings.retention.prune_batch_size,
        others=forgotten(settings, database),
    )
    return {"replays": replays.run, "webhooks": sender.run, "pruner": pruner.run}


def forgotten(settings: Settings, database: Database) -> dict[str, tuple[timedelta, Forget]]:
    days = settings.retention.audit_ttl_days
    ended = timedelta(days=days) if days else ENDED_KEPT
    forget, compact = PostgresRetention(database).forget, PostgresStatistics(database).compact
    log_days = settings.event_log.days
    return {
        "search_outbox_workers": (WORKERS_KEPT, partial(forget, "forget_workers")),
        "search_outbox_replays": (ended, partial(forget, "forget_replays")),
        "search_outbox_webhook_deliveries": (ended, partial(forget, "forget_deliveries")),
        "search_outbox_rollup": (
            MINUTES_KEPT,
            lambda age, most: compact(age, most) + forget("forget_rollup", HOURS_KEPT, most),
        ),
        "search_outbox_places": (PLACES_KEPT, partial(forget, "forget_places")),
        "search_outbox_log": (timedelta(days=log_days), PostgresEventLog(database, forget=log_days > 0).keep),
    }
