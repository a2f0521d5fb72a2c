"""Owns the part `alerts`, and what the part `kafka` adds to it: each alert fires and ends once."""

import json
import time
from pathlib import Path

from outbox import __version__
from tests.deployed import compose, scenario
from tests.deployed.alerting import ALTERED, REAL, Provocation, Seen, alerting, all_keys, judged
from tests.deployed.compose import BY, INFRA, PROJECT, Compose
from tests.deployed.engine import docker_engine
from tests.deployed.scenario import Figures, Versions, execute
from tests.deployed.shell import DeploymentFailed, await_until

IMAGE = f"outbox-projector:{__version__}"
# The shipped files have no webhook; at this address nobody answers one. Under their `pause` an outage ends all bulk
# requests, and OutboxPaused stands for it: OutboxStalled and OutboxElasticsearchFailing are of `count`, the default.
# A request that is not answered ends within what five minutes are here.
CHANGED = {"OUTBOX_WEBHOOK_URL": "https://db:1/hook", "OUTBOX_OUTAGE_POLICY": "count", "ELASTIC_TIMEOUT_SECONDS": "3"}
HOOKED = {"services": {"projector": {"environment": CHANGED}}}
LATE = """
insert into search_outbox_events (entity_type, entity_id, op, payload, created_at)
select 'article', 'late' || i, 'upsert', '{"title": "late"}', now() - interval '20 minutes' from generate_series(1, 2) i
"""
OLD = "update search_outbox_events set created_at = created_at - interval '20 minutes' where status = 'pending'"
PAUSED = """import json, urllib.request as u
assert not json.load(u.urlopen("http://127.0.0.1:9108/readyz", timeout=3))["checks"]["paused"]["ok"]"""
NOTES = "insert into notes (title, price) select 'alert ' || i, i from generate_series(1, {}) as i"
BROKEN = """
select outbox_enqueue('article', 'broken' || i, 'upsert', '{"title": "broken", "price": "on request"}')
from generate_series(1, 300) i
"""
STREAM = frozenset(name for name in all_keys() if name.startswith(("OutboxStream", "OutboxSlot")))


def play(folder: Path, only_standins: bool, figures: Figures, versions: Versions) -> None:
    with docker_engine(folder) as engine:
        versions |= {**engine.versions, "images": compose.prepare(engine, only_standins)}
        hooked = folder / "hooked.yml"
        hooked.write_text(json.dumps(HOOKED))
        with compose.up(engine, INFRA, str(hooked)) as stack, alerting(engine, PROJECT, IMAGE) as seen:
            scenario.prepare(stack)
            figures |= seen.play(Table(stack, seen).steps())
            _check(figures, all_keys() - STREAM)


def _check(figures: Figures, wanted: frozenset[str] | set[str]) -> None:
    if late := [*judged(figures), *(f"{name}: not tried" for name in wanted - set(figures))]:
        raise DeploymentFailed(", ".join(late))


class Table:
    """The states of a deployment without Kafka, on one projector."""

    def __init__(self, stack: Compose, seen: Seen) -> None:
        self._stack, self._seen, self._docker = stack, seen, stack.engine.docker
        [self._projector] = stack.projectors()

    def steps(self) -> list[Provocation]:
        return [
            # Of the sample, whose last event the mapping refuses.
            Provocation(_real("OutboxFailedEvents"), lambda: None, self._flush),
            # OutboxPruneOverdue asks for a projector of six hours ago, which is six minutes here: what took long for
            # OutboxFreshnessBurn is over then too.
            Provocation(
                {
                    **_real(
                        "OutboxFreshnessBurn critical 1h",
                        "OutboxFreshnessBurn critical 6h",
                        "OutboxFreshnessBurn warning 3d",
                    ),
                    "OutboxPruneOverdue": ALTERED,
                },
                self._late,
                self._many_in_time,
                480,
            ),
            Provocation(_real("OutboxOldestAge warning", "OutboxOldestAge critical"), self._old, self._resume),
            Provocation(_real("OutboxPaused", "OutboxLagNotFalling"), self._backlog, self._resume),
            # A batch of a killed projector is taken back within a second of the end of its lease.
            _altered(self._seen, ("OutboxStuck",), "stuck_processing_events", set=3),
            Provocation(_real("OutboxStalled", "OutboxElasticsearchFailing"), self._search_frozen, self._search_thawed),
            Provocation(_real("OutboxFailureBurst"), lambda: execute(self._stack, BROKEN)),
            Provocation(_real("OutboxBrakeOn"), lambda: None, self._let_fail),
            Provocation(_real("OutboxReplayFailingAgain", "OutboxWebhookFailing"), lambda: compose.replay(self._stack)),
            Provocation(_real("OutboxIndexAhead"), self._ahead),
            Provocation(_real("OutboxInstanceDown", "OutboxDown"), self._stopped, self._started),
            Provocation(_real("OutboxConsoleRefusals"), compose.wrong_tokens),
            Provocation(
                _real("OutboxSamplerStale"),
                lambda: self._servers("pause", "db"),
                lambda: self._servers("unpause", "db"),
                240,
            ),
            _altered(self._seen, ("OutboxNoProgress",), "no_progress_batches_total", grow=1),
        ]

    def _servers(self, word: str, service: str) -> None:
        """More than once: a control group whose processes are busy may not freeze at the first try."""
        await_until(lambda: (self._stack.compose(word, service), True), f"{word} of {service}", 60)

    def _pause(self) -> None:
        """Until the projector obeys: on a busy machine it took what was written right after the command."""
        self._stack.operator("pause", *BY)
        obeyed = (self._projector, "python", "-c", PAUSED)
        await_until(lambda: self._docker("exec", *obeyed) == "", "a paused projector", 60)

    def _resume(self) -> None:
        self._stack.operator("resume", *BY)

    def _late(self) -> None:
        self._seen.alter({"series": "outbox_prune_timestamp_seconds", "add": -7 * 3600})
        for _ in range(10):
            execute(self._stack, LATE)
            time.sleep(1)

    def _many_in_time(self) -> None:
        self._seen.alter()
        for _ in range(10):
            execute(self._stack, NOTES.format(400))
            time.sleep(2)

    def _old(self) -> None:
        self._pause()
        execute(self._stack, NOTES.format(3), OLD)

    def _backlog(self) -> None:
        self._pause()
        execute(self._stack, NOTES.format(200))

    def _search_frozen(self) -> None:
        """More events than the lanes take at once: those that wait are due."""
        self._servers("pause", "es")
        execute(self._stack, NOTES.format(5000))

    def _search_thawed(self) -> None:
        self._servers("unpause", "es")

    def _flush(self) -> None:
        count = execute(self._stack, "select 1 from search_outbox_events where failed_at is not null")[0]
        self._stack.operator(
            "flush", "--entity-type", "article", "--expect", str(count), *BY, "--approved-by", "nobody", "--yes"
        )

    def _let_fail(self) -> None:
        told = json.loads(self._stack.operator("stats", "--groups", "--json"))
        self._stack.operator("resume", "--let-fail", told["groups"][0]["fingerprint"], *BY)

    def _ahead(self) -> None:
        """Somebody writes to the index by hand, with a version of his own."""
        with self._stack.client() as client:
            query = {"match": {"tags": "note"}}
            hit = client.search(index=self._stack.index, query=query, size=1, version=True)["hits"]["hits"][0]
            client.index(
                index=hit["_index"],
                id=hit["_id"],
                document=hit["_source"],
                version=hit["_version"] + 10**6,
                version_type="external",
            )
        execute(self._stack, f"update notes set price = price + 1 where id = {int(hit['_id'].rpartition(':')[2])}")

    def _stopped(self) -> None:
        self._docker("stop", self._projector)

    def _started(self) -> None:
        self._docker("start", self._projector)


def play_stream(stack: Compose, figures: Figures) -> None:
    """What only a deployment with Kafka has."""
    with alerting(stack.engine, PROJECT, IMAGE) as seen:
        steps = [
            Provocation(
                _real("OutboxSlotInactive"),
                lambda: stack.compose("stop", "connect"),
                lambda: stack.compose("start", "connect"),
                240,
            ),
            _altered(
                seen,
                ("OutboxStreamBehind warning", "OutboxStreamBehind critical"),
                "stream_oldest_age_seconds",
                set=1000,
            ),
            _altered(seen, ("OutboxStreamBehind warning 15m",), "stream_lag_records", set=20_000, grow=2000),
            _altered(seen, ("OutboxStreamGap",), "stream_gaps_total", add=1),
            _altered(seen, ("OutboxStreamCommitsRefused",), "stream_commits_refused_total", grow=1),
            _altered(seen, ("OutboxSlotBehind warning",), "slot_kept_bytes", set=2 << 30),
            _altered(seen, ("OutboxSlotBehind critical",), "slot_safe_bytes", set=0),
        ]
        figures |= seen.play(steps)
        _check(figures, STREAM)


def _altered(seen: Seen, names: tuple[str, ...], series: str, **change: float) -> Provocation:
    alteration = {"series": f"outbox_{series}", **change}
    return Provocation(dict.fromkeys(names, ALTERED), lambda: seen.alter(alteration), seen.alter, 480)


def _real(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, REAL)
