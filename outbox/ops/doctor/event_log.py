"""What `outbox doctor` says about the event log: its table, its publication, its days and the connector's slot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from outbox.ops.status import size
from outbox.ports import EventLogFacts, Finding, Level, SlotFacts

LOG: Final = "event_log"
SLOT: Final = "slot"
FEW_DAYS_AHEAD: Final = 2
LATE_DAYS: Final = 2  # a day is dropped when it is wholly over, by the pass after midnight
# Measured under load: 216 MB within 90 s for a stopped connector. For a running one it is some segments of 16 MB.
MUCH_KEPT_BYTES: Final = 1 << 30
LIMIT: Final = "alter system set max_slot_wal_keep_size = '20GB'; select pg_reload_conf()"
CREATE: Final = (
    "create publication outbox_log for table search_outbox_log"
    " with (publish = 'insert', publish_via_partition_root = true)"
)


def event_log(facts: EventLogFacts | None, slot: str, keep_days: float) -> Iterator[Finding]:
    """Nothing where `outbox migrate --log` was never run."""
    if facts is None:
        return
    if not facts.on:
        detail = "search_outbox_log is there, and producers do not write to it"
        remedy = "When the connector has read to the end, drop it as docs/kafka-log.md says."
        yield Finding(LOG, Level.WARN, detail, remedy)
    else:
        yield Finding(LOG, Level.OK, "producers write to search_outbox_log")
    yield from _publication(facts)
    yield from _days(facts, keep_days)
    yield from _slot(facts, slot)


def _publication(facts: EventLogFacts) -> Iterator[Finding]:
    if not facts.has_publication:
        yield Finding(LOG, Level.BAD, "publication outbox_log is missing: no connector can read the log", f"{CREATE};")
    elif not facts.publishes_log:
        detail = "publication outbox_log does not contain search_outbox_log"
        yield Finding(LOG, Level.BAD, detail, "alter publication outbox_log add table search_outbox_log;")
    elif not facts.publishes_inserts or facts.publishes_more:
        detail = "publication outbox_log must publish inserts, by way of the partitioned table, and nothing else"
        remedy = "alter publication outbox_log set (publish = 'insert', publish_via_partition_root = true);"
        yield Finding(LOG, Level.BAD, detail, remedy)
    if facts.wal_level != "logical":
        detail = f"wal_level is {facts.wal_level}: the write-ahead log cannot be decoded"
        yield Finding(LOG, Level.BAD, detail, "alter system set wal_level = 'logical', then restart PostgreSQL.")


def _days(facts: EventLogFacts, keep_days: float) -> Iterator[Finding]:
    if facts.days_ahead is None or facts.days_ahead < FEW_DAYS_AHEAD:
        ahead = "has no partition" if facts.days_ahead is None else f"has partitions for {facts.days_ahead} days ahead"
        remedy = "A running projector makes them: start `outbox run`, or `select search_outbox_log_days(7);`."
        if not facts.may_make_days:
            remedy = "Give the projector's role its rights: `select search_outbox_log_grant();` as the owner."
        yield Finding(LOG, Level.WARN, f"search_outbox_log {ahead}; then rows go to the default partition", remedy)
    if facts.in_default:
        detail = f"the default partition has rows ({facts.in_default_shown}); they are published like all others"
        remedy = (
            "No projector made the days ahead, or created_at was written by hand. Rows go by their age; a day that has"
            " rows there gets no partition."
        )
        yield Finding(LOG, Level.WARN, detail, remedy)
    if keep_days and facts.oldest_day is not None and facts.oldest_day > keep_days + LATE_DAYS:
        detail = f"the oldest day is {facts.oldest_day} days old, and OUTBOX_EVENT_LOG_DAYS is {keep_days:g}"
        remedy = "A running projector drops it as soon as no transaction holds search_outbox_log: end long ones."
        yield Finding(LOG, Level.WARN, detail, remedy)


def _slot(facts: EventLogFacts, name: str) -> Iterator[Finding]:
    slot = facts.slot
    if slot is None:
        if facts.on:
            detail = f"there is no slot {name}: no connector has read the log yet"
            remedy = "Start a connector with the configuration of `outbox kafka connector`; it reads what is there."
            yield Finding(SLOT, Level.WARN, detail, remedy)
        return
    yield from _lost(slot, name)
    if not slot.active:
        detail = f"slot {name} is not in use; the server keeps {size(slot.kept_bytes)} for it"
        remedy = "Start the connector (`outbox kafka connector --check URL` tells why it stopped), or drop the slot."
        yield Finding(SLOT, Level.BAD if facts.on else Level.WARN, detail, remedy)
    elif slot.kept_bytes is not None and slot.kept_bytes > MUCH_KEPT_BYTES:
        detail = f"slot {name} is {size(slot.unread_bytes)} behind; the server keeps {size(slot.kept_bytes)} for it"
        remedy = "Check the connector, its heartbeat, and long transactions (pg_stat_activity, backend_xid)."
        yield Finding(SLOT, Level.WARN, detail, remedy)
    else:
        yield Finding(SLOT, Level.OK, f"slot {name} is in use, {size(slot.unread_bytes)} behind")
    if facts.most_kept_bytes is None:
        detail = "max_slot_wal_keep_size has no limit: a connector that stays down fills the disk of PostgreSQL"
        yield Finding(SLOT, Level.WARN, detail, f"Set what the disk can hold: {LIMIT};")


def _lost(slot: SlotFacts, name: str) -> Iterator[Finding]:
    if not slot.ours or slot.plugin != "pgoutput":
        detail = f"slot {name} belongs to another database or reads with {slot.plugin}, not pgoutput"
        yield Finding(SLOT, Level.BAD, detail, "Set OUTBOX_EVENT_LOG_SLOT to a name of its own.")
    if slot.wal_status == "lost":
        detail = f"slot {name} is lost: it was further behind than max_slot_wal_keep_size allows"
        remedy = (
            "Drop it and start the connector anew, which reads the days that the log keeps. Events of days that are"
            " gone are missing: run `outbox verify`, then `outbox refresh --all`."
        )
        yield Finding(SLOT, Level.BAD, detail, remedy)
    elif slot.wal_status == "unreserved":
        detail = f"slot {name} will be lost at the next checkpoint: it is beyond max_slot_wal_keep_size"
        yield Finding(SLOT, Level.BAD, detail, "Start the connector now, or raise max_slot_wal_keep_size.")
