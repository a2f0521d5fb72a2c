"""Compares a running connector with the configuration that we would give it. Corrects nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from outbox.kafka import connector
from outbox.kafka.connect_rest import ConnectDown
from outbox.kafka.connector import ConnectorPlan
from outbox.ports import Finding, Level

CONNECTOR: Final = "connector"
SETTING: Final = "setting"
OPEN: Final = "connect_open"
AWAY: Final = (
    "Start Kafka Connect, or correct KAFKA_CONNECT_URL. Until it runs nothing new comes to the topic, and PostgreSQL"
    " keeps its write-ahead log. A standalone one must be given the connector again (docs/kafka-log.md)."
)
AGAIN: Final = "Give it the configuration of `outbox kafka connector`."


class ConnectorExam(Protocol):
    def configuration(self, name: str) -> Mapping[str, str] | None: ...
    def status(self, name: str) -> Mapping[str, Any] | None: ...
    def is_open(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class ConnectorCheck:
    connect: ConnectorExam
    plan: ConnectorPlan

    def state(self) -> Iterator[Finding]:
        """Whether it is there and runs; its settings are not checked."""
        try:
            yield from self._access()
            status = self.connect.status(self.plan.name)
        except ConnectDown as away:
            yield Finding(CONNECTOR, Level.UNKNOWN, f"Kafka Connect does not answer: {away.detail}", AWAY)
            return
        if status is None:
            yield _missing(self.plan.name)
        else:
            yield from _state(self.plan.name, status)

    def examine(self) -> Iterator[Finding]:
        name = self.plan.name
        found, status = self.connect.configuration(name), self.connect.status(name)
        if found is None or status is None:
            yield _missing(name)
            return
        yield from _state(name, status)
        yield from _settings(connector.configuration(self.plan), found)

    def _access(self) -> Iterator[Finding]:
        """A warning, not BAD: a network policy may guard it, as Strimzi's does, and this cannot see that."""
        if self.connect.is_open():
            detail = "Kafka Connect answers without a login: whoever reaches it can learn the connector's password"
            yield Finding(
                OPEN, Level.WARN, detail, "Give it a login and loopback, or guard its port (docs/kafka-log.md)."
            )


def _missing(name: str) -> Finding:
    remedy = "Register it: `outbox kafka connector` prints what to send (docs/kafka-log.md)."
    return Finding(CONNECTOR, Level.BAD, f"there is no connector {name}", remedy)


def _state(name: str, status: Mapping[str, Any]) -> Iterator[Finding]:
    stopped = list(connector.failed_tasks(status))
    if not status.get("tasks"):
        stopped.append(("UNASSIGNED", ""))
    if not stopped:
        yield Finding(CONNECTOR, Level.OK, f"{name} runs")
    for state, trace in stopped:
        if not trace:
            remedy = f"Resume or restart it: PUT /connectors/{name}/resume, POST /connectors/{name}/restart."
            yield Finding(CONNECTOR, Level.BAD, f"{name} is {state}", remedy)
        else:
            detail = f"{name} is {state}: {connector.reason(trace)}"
            yield Finding(CONNECTOR, Level.BAD, detail, connector.remedy(trace))


def _settings(wanted: Mapping[str, str], found: Mapping[str, str]) -> Iterator[Finding]:
    differing = list(connector.differences(wanted, found))
    for detail, breaks in differing:
        remedy = AGAIN if breaks else "Right if it was meant; else give it our configuration."
        yield Finding(SETTING, Level.BAD if breaks else Level.WARN, detail, remedy)
    if connector.plain_password(found):
        detail = "database.password stands in the configuration, which everyone who reaches Connect can read"
        yield Finding(SETTING, Level.WARN, detail, "Use ${file:...}; the worker needs config.providers=file.")
    if not differing:
        yield Finding(SETTING, Level.OK, "the configuration is ours")
