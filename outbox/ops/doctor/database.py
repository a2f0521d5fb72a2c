"""What `outbox doctor` says about PostgreSQL (server, limits, schema, rights) and workers, failures and pauses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from outbox.errors import DatabaseDown
from outbox.ops.status import QueueStatus, age, size
from outbox.policy.replica import ReplicaFacts
from outbox.ports import Finding, Level, Pooled

if TYPE_CHECKING:
    from outbox.store.doctor import PostgresDoctor

OLDEST_SUPPORTED: Final = 150_000
MOST_APART_SECONDS: Final = 2.0
# A bulk settle of 10,000 rows and a reclaim step stay far below this; a shorter limit would cancel honest work.
SHORTEST_STATEMENT_MS: Final = 5_000

ENOUGH_BUFFERS: Final = 2**30  # a large outbox need not fit as a whole: claims touch what is open
ENOUGH_WAL: Final = 2**30  # for a share to mean anything
WHOLE_PAGE_BYTES: Final = 4096  # of 8 KB, without the free space that an outbox's pages are left with
MOST_WHOLE_PAGES: Final = 0.5

# As 0013_roles sets them for a projector.
_LIMITS: Final = {
    "statement_timeout_ms": "statement_timeout = '60s'",
    "lock_timeout_ms": "lock_timeout = '10s'",
    "idle_timeout_ms": "idle_in_transaction_session_timeout = '60s'",
}

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DoctorSettings:
    """What the settings ask of the database."""

    by_type: bool
    notify: bool
    view: str
    log_slot: str = "outbox_log"
    log_days: float = 3.0
    most_bytes: int | None = None  # of a document; None: not asked


def server(store: PostgresDoctor, wanted: DoctorSettings) -> Iterator[Finding]:
    before = time.time()
    about = store.server()
    after = time.time()
    yield _version(about)
    yield _clock(about["now"].timestamp(), before, after)
    yield _limits(about)
    yield _pooler(store.pooler(), wanted)


def speed(store: PostgresDoctor) -> Iterator[Finding]:
    """What of the server costs throughput, each by what is there: a small outbox needs nothing of it."""
    about = store.speed()
    buffers, outbox = size(about["shared_buffers"]), size(about["bytes"])
    summary = f"shared_buffers {buffers}, max_wal_size {about['max_wal_size']}; outbox {outbox}"
    slow = list(_slow(about, summary))
    yield from slow or [Finding("server_speed", Level.OK, summary)]


def _slow(about: Row, summary: str) -> Iterator[Finding]:
    if not about["autovacuum"]:
        remedy = "`alter system set autovacuum = on` and reload: nothing else removes the dead rows of finished events."
        yield Finding("server_speed", Level.WARN, "autovacuum is off", remedy)
    if about["shared_buffers"] < min(about["bytes"], ENOUGH_BUFFERS):
        remedy = "`alter system set shared_buffers` to a quarter of the machine's memory, and restart the server."
        yield Finding("server_speed", Level.WARN, f"{summary}: larger than the buffers", remedy)
    share = about["whole_pages"] * WHOLE_PAGE_BYTES / max(1, about["wal_bytes"])
    if about["wal_bytes"] >= ENOUGH_WAL and share > MOST_WHOLE_PAGES:
        detail = f"about {min(share, 1):.0%} of the WAL are whole pages, written once more after each checkpoint"
        remedy = f"`alter system set max_wal_size = '8GB'` (now {about['max_wal_size']}), as the disk allows; reload."
        yield Finding("server_speed", Level.WARN, detail, remedy)


def replica(read: Callable[[], ReplicaFacts]) -> Iterator[Finding]:
    """What OUTBOX_READ_DATABASE_URL names: comparisons read it, so that a wrong one hides drift."""
    try:
        facts = read()
    except DatabaseDown as error:
        remedy = "`outbox verify` needs it: start it, correct OUTBOX_READ_DATABASE_URL, or leave that unset."
        yield Finding("replica", Level.BAD, f"it does not answer: {error.detail}", remedy)
        return
    if facts.refusal is not None:
        remedy = "Set OUTBOX_READ_DATABASE_URL to a streaming replica of this database, or leave it unset."
        yield Finding("replica", Level.BAD, facts.refusal, remedy)
    elif facts.is_late:
        remedy = "See pg_stat_replication on the primary; or leave OUTBOX_READ_DATABASE_URL unset."
        yield Finding("replica", Level.WARN, facts.delay, remedy)
    else:
        yield Finding("replica", Level.OK, f"{facts.delay}; `outbox verify` reads it")


_DIRECT: Final = "Set OUTBOX_DIRECT_DATABASE_URL to PostgreSQL itself, past the pooler."


def _pooler(found: Pooled, wanted: DoctorSettings) -> Finding:
    """`migrate`, LISTEN and `attach` need a session that stays theirs; all else works behind any pooler."""
    summary = "a pooler stands before the database" if found.between else "no pooler stands before the database"
    if found.direct_is_shared:
        level = Level.BAD if wanted.notify else Level.WARN
        deaf = ", and OUTBOX_LISTEN would hear nothing" if wanted.notify else ""
        return Finding("pooler", level, f"{summary}; `outbox migrate` would go through it{deaf}", _DIRECT)
    if found.direct_is_shared is None:
        remedy = "`outbox migrate` and LISTEN use it: correct it, or leave it unset."
        return Finding("pooler", Level.WARN, f"{summary}; OUTBOX_DIRECT_DATABASE_URL does not answer", remedy)
    return Finding("pooler", Level.OK, summary)


def _version(about: Row) -> Finding:
    summary = f"PostgreSQL {about['version']} at {about['address']}, {about['serves_as']};"
    summary += f" database {about['database']} as {about['role']}"
    if about["version_num"] < OLDEST_SUPPORTED:
        return Finding("database", Level.BAD, summary, "PostgreSQL 15 or later is needed.")
    return Finding("database", Level.OK, summary)


def _clock(there: float, before: float, after: float) -> Finding:
    """Leases and due times go by the database's clock alone; logs and ages on a screen go by ours."""
    apart = there - min(max(there, before), after)
    if abs(apart) > MOST_APART_SECONDS:
        detail = f"the database's clock is {apart:+.1f} s from this machine's"
        return Finding("clock", Level.WARN, detail, "Leases are safe; set the clocks right to read logs side by side.")
    return Finding("clock", Level.OK, f"within {max(abs(apart), after - before):.2f} s of the database's")


def _limits(about: Row) -> Finding:
    summary = (
        f"statement {_limit(about['statement_timeout_ms'])}, lock {_limit(about['lock_timeout_ms'])}, "
        f"idle in transaction {_limit(about['idle_timeout_ms'])}"
    )
    role = about["role"]
    missing = [name for key, name in _LIMITS.items() if not about[key]]
    if missing:
        remedy = "; ".join(f"alter role {role} set {name}" for name in missing)
        return Finding("timeouts", Level.WARN, summary, remedy)
    if about["statement_timeout_ms"] < SHORTEST_STATEMENT_MS:
        remedy = f"alter role {role} set {_LIMITS['statement_timeout_ms']}"
        return Finding("timeouts", Level.WARN, f"{summary}: too short for a large settle", remedy)
    return Finding("timeouts", Level.OK, summary)


def _limit(milliseconds: int) -> str:
    return f"{milliseconds / 1000:g} s" if milliseconds else "none"


def schema(store: PostgresDoctor, wanted: DoctorSettings) -> Iterator[Finding]:
    status = store.schema()
    if not status.schema.ok:
        yield Finding("schema", Level.BAD, str(status.schema).removesuffix(status.schema.remedy), status.schema.remedy)
        return
    yield Finding("schema", Level.OK, str(status.schema))
    for slow in status.slow_indexes:
        remedy = "It is unique: decide yourself." if slow.kept else "Run `outbox migrate --drop-slow-indexes`."
        yield Finding("slow_indexes", Level.WARN, f"index {slow.name} makes every claim touch every index", remedy)
    if not status.slow_indexes:
        yield Finding("slow_indexes", Level.OK, "no index uses a column that a claim writes")
    yield from _parts(status.parts, wanted)
    if wanted.most_bytes is not None and (taken := store.most_bytes()) != wanted.most_bytes:
        detail = f"outbox_enqueue takes payloads of up to {taken:,} bytes, projectors {wanted.most_bytes:,}"
        remedy = "Run `outbox migrate` with the projectors' OUTBOX_MAX_DOCUMENT_BYTES."
        yield Finding("document_limit", Level.WARN, detail, remedy)


def _parts(parts: Mapping[str, bool], wanted: DoctorSettings) -> Iterator[Finding]:
    if wanted.by_type and not parts.get("by_type"):
        detail = "the settings claim by entity type, and the indexes for that are missing"
        yield Finding("by_type", Level.BAD, detail, "Run `outbox migrate --by-type`.")
    if wanted.notify and not parts.get("notify"):
        detail = "OUTBOX_LISTEN is set, and a trigger that notifies is missing: the poll interval decides"
        yield Finding("notify", Level.WARN, detail, "Run `outbox migrate --notify`.")


def privileges(store: PostgresDoctor) -> Iterator[Finding]:
    """Whoever runs this may be the daemon's role, or a person's: what it may do tells which."""
    rows = store.lacking_privileges()
    lacking = [f"{row['privilege']} on {row['relation']}" for row in rows if row["work"] == "projector"]
    others = {"operator", "reader"} - {row["work"] for row in rows}
    if not lacking:
        yield Finding("privileges", Level.OK, "this role may do what a projector does")
    elif others:
        summary = (
            f"this role may do what a person's does ({min(others)}); for a projector it lacks {', '.join(lacking)}"
        )
        yield Finding(
            "privileges", Level.WARN, summary, "Right for a person; `outbox run` needs search_outbox_projector."
        )
    else:
        remedy = "Make it a member of search_outbox_projector, or grant these; see docs/security.md."
        yield Finding("privileges", Level.BAD, f"this role lacks {', '.join(lacking)}", remedy)


def roles(store: PostgresDoctor) -> Iterator[Finding]:
    missing = store.missing_roles()
    if missing:
        remedy = "As a role that may create roles: `select search_outbox_grant_roles();` (docs/security.md)."
        yield Finding("roles", Level.WARN, f"not made: {', '.join(missing)}", remedy)
    else:
        yield Finding("roles", Level.OK, "producer, projector, operator and reader are there")


def creators(store: PostgresDoctor) -> Iterator[Finding]:
    """A function that fits a call better than PostgreSQL's own runs with the rights of whoever runs our queries. BAD
    only where somebody can log in and do it: PUBLIC's right, which databases have that began before PostgreSQL 15,
    harms nobody where the owner is alone."""
    rows = store.may_create()
    if not rows:
        yield Finding("schema_rights", Level.OK, "only its owner can create anything in the outbox's schema")
        return
    schema, everybody = rows[0]["schema"], rows[0]["everybody"]
    logins = ", ".join(row["role"] for row in rows)
    remedy = (
        f"`revoke create on schema {schema} from {'public' if everybody else logins}`, as its owner. A role that"
        " must create tables there is granted it by name, and trusted like the owner; or it gets a schema of its own."
    )
    detail = f"may create functions in schema {schema}, and so act as the projector or the owner: {logins}"
    yield Finding("schema_rights", Level.BAD, detail, remedy)


def work(status: QueueStatus) -> Iterator[Finding]:
    yield _projectors(status)
    if status.queue.failed:
        reasons = ", ".join(f"{n} {reason or 'without a reason'}" for reason, n in status.failed_by_reason.items())
        remedy = "See `outbox list --status failed`; fix the cause, then `outbox-replay --by NAME --reason WHY`."
        yield Finding("failed", Level.WARN, f"failed events: {reasons}", remedy)
    if status.queue.stuck:
        remedy = "A running projector takes them back by itself; without one start `outbox run`."
        yield Finding("stuck", Level.WARN, f"held by workers that are gone: {status.queue.stuck}", remedy)
    for pause in status.pauses:
        if pause["kind"] == "pause":
            what = "everything" if pause["scope"] == "*" else pause["scope"].removeprefix("type:")
            remedy = "Run `outbox resume --by NAME --reason WHY` when it is time."
            yield Finding("paused", Level.WARN, f"{what} is paused by {pause['by']}: {pause['reason']}", remedy)


def _projectors(status: QueueStatus) -> Finding:
    alive = [worker for worker in status.workers if worker.alive]
    if alive:
        return Finding("workers", Level.OK, f"{len(alive)} alive: {', '.join(w.worker for w in alive[:5])}")
    if status.queue.lag:
        waits = f"{status.queue.lag} open, the oldest {age(status.queue.oldest_age_seconds)} old"
        return Finding("workers", Level.BAD, f"no projector runs: {waits}", "Start `outbox run`.")
    return Finding("workers", Level.WARN, "no projector runs; nothing waits", "Start `outbox run`.")
