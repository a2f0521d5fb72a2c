"""Keeps webhook deliveries: what is to be sent, to whom, and how it went. Sends nothing."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from psycopg import Connection

from outbox.policy.audit import Action, Actor, Entry
from outbox.policy.webhook import GONE, Notice, WebhookDelivery
from outbox.store import audit
from outbox.store.pool import TopicStore, fetch_row
from outbox.store.queries import queries

Row = Mapping[str, Any]


def enqueue(connection: Connection[Any], notices: Sequence[Notice]) -> list[bool]:
    """In the caller's transaction. False for one whose key is there already."""
    query = queries("webhooks")["enqueue"]
    bodies = (orjson.dumps(notice.body, default=str).decode() for notice in notices)
    named = (notice._asdict() | {"body": body} for notice, body in zip(notices, bodies, strict=True))
    return [connection.execute(query, each).fetchone() is not None for each in named]


class PostgresWebhooks(TopicStore, topic="webhooks"):
    def enqueue(self, notices: Sequence[Notice]) -> list[bool]:
        with self._database.transaction() as connection:
            return enqueue(connection, notices)

    def take(self, lease_seconds: float) -> WebhookDelivery | None:
        """The next delivery that is due, for this sender alone until the lease ends."""
        row = self._one("take", lease=timedelta(seconds=lease_seconds))
        return None if row is None else WebhookDelivery(*row)

    def delivered(self, delivery: WebhookDelivery, response: int) -> None:
        """A receiver that takes a message is no longer disabled."""
        with self._database.transaction() as connection:
            connection.execute(self._sql["delivered"], _named(delivery, response))
            connection.execute(self._sql["enable"], {"id": delivery.id})

    def put_off(self, delivery: WebhookDelivery, delay_seconds: float, response: int | None, error: str) -> None:
        self._run("put_off", **_named(delivery, response), error=error, delay=timedelta(seconds=delay_seconds))

    def close(self, delivery: WebhookDelivery, status: str, response: int | None, error: str) -> None:
        """This delivery ends; with a 410 of the receiver's own, its address is disabled too."""
        if response == GONE:
            self._run("disable", id=delivery.id)
        self._run("close", **_named(delivery, response), status=status, error=error)

    def redeliver(self, id: UUID, actor: Actor, reason: str | None) -> Row | None:
        with self._database.transaction() as connection:
            row = fetch_row(connection, self._sql["redeliver"], {"id": id, "by": actor.name})
            if row is not None:
                detail = {"delivery": id, "type": row["type"], "to": row["sent_to"]}
                entry = Entry(Action.WEBHOOK_REDELIVERED, actor, reason, row["replay_id"], detail=detail)
                audit.write(connection, [entry])
            return row

    def page(self, before: datetime, before_id: UUID, limit: int) -> Sequence[Row]:
        return self._rows("page", before=before, before_id=before_id, limit=limit)


def _named(delivery: WebhookDelivery, response: int | None) -> dict[str, Any]:
    return {"id": delivery.id, "attempts": delivery.attempts, "response": response}
