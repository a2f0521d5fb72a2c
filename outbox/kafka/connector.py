"""The Debezium connector of the event log: its configuration, how a running one differs, what errors mean. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from outbox.policy.redact import cut, redact

TABLE: Final = "search_outbox_log"
PUBLICATION: Final = "outbox_log"
TOPIC: Final = "outbox.search_outbox_log"
_TEXT: Final = "org.apache.kafka.connect.storage.StringConverter"
_ROUTER: Final = "transforms.outbox"

_HEADERS: Final = "event:header"  # the column that describes the event; `id` becomes a header by itself

HEADERS_BYTES: Final = 1 << 20
LARGEST_RECORD_BYTES: Final = (32 << 20) + HEADERS_BYTES
"""A producer of Kafka takes 1 MB unless it is configured otherwise, and one event above it would stop the connector: so
it is the largest payload that `outbox_enqueue` takes, with room for what stands around it."""

HEARTBEAT_MS: Final = 10_000
POLL_MS: Final = 50
"""Debezium waits for so long to fill a batch, and for what comes next: half a second unless it is configured."""


@dataclass(frozen=True, slots=True)
class ConnectorPlan:
    """What a connector must know. `secrets` is a file of the Connect worker with a line `password=...`."""

    host: str
    port: int
    database: str
    user: str
    slot: str
    publication: str = PUBLICATION
    name: str = "outbox-log"
    topic: str = TOPIC
    prefix: str = "outbox"
    schema: str = "public"
    secrets: str = "/etc/outbox/connector.properties"
    partitions: int = 6
    replication: int = -1
    """-1 is the broker's default."""
    record_bytes: int = LARGEST_RECORD_BYTES
    tls: Mapping[str, str] | None = None
    """`sslmode` and the like, as libpq names them."""


def configuration(plan: ConnectorPlan) -> dict[str, str]:
    """Everything but the name, as Connect takes it: text in text out."""
    return {**_reading(plan), **_record(plan), **_kafka(plan)}


def _reading(plan: ConnectorPlan) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": plan.host,
        "database.port": str(plan.port),
        "database.dbname": plan.database,
        "database.user": plan.user,
        "database.password": f"${{file:{plan.secrets}:password}}",
        **{f"database.{name}": value for name, value in (plan.tls or {}).items()},
        "topic.prefix": plan.prefix,
        "plugin.name": "pgoutput",
        "slot.name": plan.slot,
        "publication.name": plan.publication,
        "publication.autocreate.mode": "disabled",
        "table.include.list": f"{re.escape(plan.schema)}[.]{TABLE}",
        # What was written before the first start, or while the slot was lost, is read from the table.
        "snapshot.mode": "when_needed",
        "tombstones.on.delete": "false",
        "poll.interval.ms": str(POLL_MS),
        # Without it the slot of a quiet outbox would keep all that other tables write: it moves with what it reads.
        "heartbeat.interval.ms": str(HEARTBEAT_MS),
        "heartbeat.action.query": "select pg_logical_emit_message(true, 'outbox.heartbeat', '')",
        "message.prefix.exclude.list": ".*",
        # Four headers of Debezium's own in every record, about 190 bytes, that nobody reads.
        "extended.headers.enabled": "false",
    }


def _record(plan: ConnectorPlan) -> dict[str, str]:
    """The key is the entity, the value is the payload's own bytes, all else is in two headers."""
    return {
        "key.converter": _TEXT,
        "value.converter": _TEXT,
        "header.converter": _TEXT,
        "predicates": "isLog",
        "predicates.isLog.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        "predicates.isLog.pattern": f"{re.escape(plan.prefix)}[.]{re.escape(plan.schema)}[.]{TABLE}",
        "transforms": "outbox",
        f"{_ROUTER}.type": "io.debezium.transforms.outbox.EventRouter",
        f"{_ROUTER}.predicate": "isLog",
        f"{_ROUTER}.table.field.event.id": "id",
        f"{_ROUTER}.table.field.event.key": "entity_key",
        f"{_ROUTER}.table.field.event.payload": "payload",
        f"{_ROUTER}.table.fields.additional.placement": _HEADERS,
        f"{_ROUTER}.table.expand.json.payload": "false",
        f"{_ROUTER}.route.by.field": "entity_type",
        # One topic, whatever the entity type is, a line break in it included.
        f"{_ROUTER}.route.topic.regex": "(?s).*",
        f"{_ROUTER}.route.topic.replacement": plan.topic,
        f"{_ROUTER}.route.tombstone.on.empty.payload": "false",
    }


def _kafka(plan: ConnectorPlan) -> dict[str, str]:
    """Of three copies one may be missing, and the connector, which waits for all that are there, goes on."""
    confirmed = {"topic.creation.default.min.insync.replicas": "2"} if plan.replication > 2 else {}
    return {
        "producer.override.max.request.size": str(plan.record_bytes),
        "producer.override.buffer.memory": str(2 * plan.record_bytes),
        "topic.creation.default.partitions": str(plan.partitions),
        "topic.creation.default.replication.factor": str(plan.replication),
        "topic.creation.default.cleanup.policy": "delete",
        "topic.creation.default.max.message.bytes": str(plan.record_bytes),
        **confirmed,
    }


def properties(plan: ConnectorPlan) -> str:
    """The same for `connect-standalone`: a Java properties file."""
    lines = {"name": plan.name, **configuration(plan)}
    return "".join(f"{name}={_escaped(value)}\n" for name, value in lines.items())


def _escaped(value: str) -> str:
    plain = value.replace("\\", "\\\\").replace("\n", "\\n")
    return f"\\{plain}" if plain.startswith(" ") else plain


# What an operator may set as the installation needs it: where the servers are, sizes, times.
_FREE: Final = re.compile(
    r"database[.]|tasks[.]max$|poll[.]interval|heartbeat[.](?:interval|action)|producer[.]override|topic[.]creation"
    r"|snapshot[.]"
)


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """What differs from our configuration, in words; and whether records would not be what a projector reads, or would
    go missing. What someone has added is theirs."""
    for name, value in wanted.items():
        if found.get(name) != value and not name.endswith("password"):
            said = cut(found[name], 200) if name in found else "not set"
            yield f"{name} is {said}, ours is {value}", _breaks(name, found.get(name))


def _breaks(name: str, found: str | None) -> bool:
    """With `no_data` what was written before the slot was made, or while it was lost, is missing without a word."""
    return not _FREE.match(name) or (name == "snapshot.mode" and found in ("no_data", "never"))


def plain_password(found: Mapping[str, str]) -> bool:
    """Whether the password stands in the configuration, which everyone who reaches Connect can read."""
    given = found.get("database.password", "")
    return bool(given) and not re.match(r"\$\{\w+:", given)


# What a task's error says, as a pattern, and what to do about it. The first that fits counts.
_REMEDIES: Final = {
    r"Publication autocreation is disabled|publication \"[^\"]*\" does not exist": "Run `outbox migrate --log`.",
    r"can no longer (get changes|access)|replication slot .* (has been invalidated|was invalidated)": (
        "The slot was lost. Drop it (`select pg_drop_replication_slot(...)`) and restart the connector, which then"
        " reads the days that the log keeps; run `outbox verify` for what was older."
    ),
    r"is active for PID": (
        "Another connector or session uses the slot. Stop that one, or give this one its own OUTBOX_EVENT_LOG_SLOT."
    ),
    r"permission denied|must be superuser or replication role|REPLICATION attribute": (
        "Give the connector's role the rights of docs/kafka-log.md."
    ),
    r"RecordTooLarge|MESSAGE_TOO_LARGE|larger than .*max\.(request|message)": (
        "An event is larger than the connector may send or the topic takes: give the connector the configuration that "
        "`outbox kafka connector --record-bytes N` prints, raise the topic's max.message.bytes to N, and restart it. "
        "`outbox migrate` lets PostgreSQL refuse such events from now on."
    ),
}


def remedy(trace: str) -> str:
    fitting = (told for pattern, told in _REMEDIES.items() if re.search(pattern, trace, re.IGNORECASE))
    return next(fitting, "Read the log of the Connect worker; restart the task when the cause is fixed.")


def reason(trace: str) -> str:
    """The innermost cause in one line, without the values of a row."""
    lines = [line.strip() for line in trace.splitlines() if line.strip() and not re.match(r"\s*(at |\.\.\.)", line)]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    told = causes[-1] if causes else (lines[0] if lines else "no reason given")
    return cut(redact(told), 300)


def failed_tasks(status: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """The state and the trace of the connector and of its tasks, where they do not run."""
    connector, tasks = status.get("connector"), status.get("tasks")
    for each in (connector, *(tasks if isinstance(tasks, list) else ())):
        if isinstance(each, Mapping) and each.get("state") != "RUNNING":
            yield str(each.get("state", "UNKNOWN")), str(each.get("trace") or "")
