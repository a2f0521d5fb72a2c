"""The invariants of every lab, each a pure function of a record. I1 to I14 are those of docs and model tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from labs.checks import holds, nobody
from labs.experiment import Check, Finding
from labs.ledger import Entry, newest
from labs.producing import CANARY
from labs.record import Record

FINISHED = {"done", "failed", "discarded"}
LEGAL = {
    ("pending", "processing"),
    ("processing", "done"),
    ("processing", "pending"),
    ("processing", "failed"),
    ("failed", "pending"),
    ("pending", "discarded"),
    ("failed", "discarded"),
    ("discarded", "pending"),
}


def nothing_lost(record: Record) -> Finding:
    """I1: every committed event ended, visibly."""
    lost = [e.id for e in record.ledger if record.events.get(e.id, {}).get("status") not in FINISHED]
    observed = f"{len(record.ledger)} committed, {len(lost)} missing or not finished"
    expected = "every committed event is done or visibly failed"
    return nobody("Nothing is lost", expected, observed, lost, "ledger.ndjson, events.ndjson")


def no_phantom(record: Record) -> Finding:
    """I2: no document without a committed event."""
    known = {entry.document for entry in record.ledger}
    # A document whose only commit got no reply and did not happen is expected to be missing.
    strange = [name for name, row in record.documents.items() if row.get("found") and name not in known]
    observed = f"{len(strange)} of {len(record.documents)} documents have no event"
    return holds("Nothing is made up", "no document without an event", observed, not strange, "documents.ndjson")


def _settled(record: Record) -> Iterator[Entry]:
    """The newest state of each document none of whose events is failed, discarded or open."""
    bad = {entry.document for entry in record.ledger if record.events.get(entry.id, {}).get("status") != "done"}
    return (entry for name, entry in newest(record.ledger).items() if name not in bad)


def converged(record: Record) -> Finding:
    """I3: body and version of every settled document are those of its newest commit."""
    settled = [entry for entry in _settled(record) if entry.op == "upsert"]
    wrong = [entry.id for entry in settled if not _is(record, entry)]
    observed = f"{len(settled)} documents compared, {len(wrong)} differ"
    expected = "each document is its newest commit, body and version"
    found = nobody("Convergence", expected, observed, wrong, "documents.ndjson, ledger.ndjson")
    return found if settled else holds("Convergence", expected, "nothing to compare", False, "documents.ndjson")


def _is(record: Record, entry: Entry) -> bool:
    found = record.documents.get(entry.document, {})
    return (found.get("version"), found.get("digest")) == (entry.version, entry.digest)


def nothing_deleted_is_back(record: Record) -> Finding:
    """I4: what was deleted last is absent."""
    deleted = [entry for entry in _settled(record) if entry.op == "delete"]
    back = [entry.id for entry in deleted if record.documents.get(entry.document, {}).get("found")]
    observed = f"{len(deleted)} deleted, {len(back)} are back"
    return nobody("Nothing deleted comes back", "deleted documents are absent", observed, back, "documents.ndjson")


def versions_never_fall(record: Record) -> Finding:
    """I5, for some documents that are polled all the time."""
    highest: Counter[str] = Counter()
    fell: list[str] = []
    for line in record.timeline:
        for name, version in line.get("canaries", {}).items():
            if 0 < version < highest[name] and name not in fell:
                fell.append(name)
            highest[name] = max(highest[name], version)
    by_document = {entry.document: entry.id for entry in record.ledger}
    observed = f"{len(highest)} documents polled all the time, {len(fell)} decreased"
    events = [by_document[name] for name in fell if name in by_document]
    return nobody("Versions never decrease", "a document's version only increases", observed, events, "timeline.ndjson")


def legal_steps(record: Record) -> Finding:
    """I8: only steps of the state machine."""
    steps = [(step["event_id"], (step["old_status"], step["new_status"])) for step in record.transitions]
    wrong = [(event, step) for event, step in steps if step not in LEGAL and step[0] != step[1]]
    first = f" (first: {wrong[0][1][0]} to {wrong[0][1][1]})" if wrong else ""
    observed = f"{len(steps)} steps, {len(wrong)} forbidden{first}"
    events = [event for event, _ in wrong]
    return nobody("Only legal steps", "only transitions of the state machine", observed, events, "transitions.ndjson")


def one_holder(record: Record) -> Finding:
    """I6 and I7: no worker claims a row with a valid lease, and none moves a row that another worker holds."""
    # A backend of a pool claims and settles for one daemon only; a reclaimer's backends never claim.
    worker_of: dict[int, str] = {}
    wrong: list[str] = []
    claims = 0
    for step in record.transitions:
        if step["new_status"] == "processing":
            claims += 1
            worker_of[step["pid"]] = step["new_owner"]
        elif step["old_status"] == "processing" and _is_foreign(step, worker_of):
            wrong.append(step["event_id"])
    observed = f"{claims} claims, {len(wrong)} steps against another worker's valid lease"
    return nobody("One holder at a time", "only the lease holder moves a row", observed, wrong, "transitions.ndjson")


def _is_foreign(step: dict[str, Any], worker_of: dict[int, str]) -> bool:
    worker = worker_of.get(step["pid"])
    if worker is not None:
        return worker != str(step["old_owner"])
    # A backend that never claimed: a new one that settles a retry, a release, which gives back the attempt, or the
    # reclaimer, which must not come before the lease has expired.
    settles = step["retries"] or step["attempts"] < step["old_attempts"]
    return step["new_status"] == "pending" and not settles and (step["lease_left"] or 0) > 0.5


def nothing_left_leased(record: Record) -> Finding:
    """I11 at the end."""
    held = [id for id, row in record.events.items() if row["status"] == "processing"]
    leases = len(record.rows("leases"))
    observed = f"{len(held)} rows processing, {leases} leases"
    if leases and not held:
        return holds("No lease is left", "no row and no lease is held at the end", observed, False, "leases.ndjson")
    return nobody(
        "No lease is left", "no row and no lease is held at the end", observed, held, "events.ndjson, leases.ndjson"
    )


def no_document_in_logs(record: Record) -> Finding:
    """I14: a mark that is in every document is in no log line."""
    lines = [path.name for path in record.log_files if CANARY in path.read_text(encoding="utf-8", errors="replace")]
    observed = f"found in {len(lines)} of {len(record.log_files)} logs"
    return holds("No document in a log", "the mark of every document is in no log", observed, not lines, "logs/")


def clean_exits(record: Record) -> Finding:
    """Every daemon that got SIGTERM exited with 0."""
    codes = record.about["exit_codes"]
    observed = ", ".join(f"{name}: {code}" for name, code in codes.items()) or "no daemon ran until the end"
    good = bool(codes) and all(code == 0 for code in codes.values())
    return holds("Clean exits", "SIGTERM ends every daemon with 0", observed, good, "record.json, logs/")


def nothing_failed(record: Record) -> Finding:
    """I10: a fault of the environment fails no event."""
    failed = [id for id, row in record.events.items() if row["status"] == "failed"]
    reasons = Counter(str(record.events[id]["error_reason"]) for id in failed)
    observed = f"{len(failed)} failed" + "".join(f", {n} {reason}" for reason, n in reasons.items())
    return nobody("Nothing failed", "this fault makes no event failed", observed, failed, "events.ndjson")


def counters_are_true(record: Record) -> Finding:
    """I13, if every daemon ran until the end: the metrics match the transitions of the rows."""
    done = sum(s["old_status"] == "processing" and s["new_status"] == "done" for s in record.transitions)
    counted = record.total("outbox_processed_total")
    observed = f"{counted:.0f} counted, {done} steps"
    expected = "outbox_processed_total is the number of steps to done"
    return holds("Metrics are right", expected, observed, counted == done, "timeline.ndjson, transitions.ndjson")


def recovered_within(seconds: float) -> Check:
    def recovered(record: Record) -> Finding:
        took = record.recovery_seconds
        observed = f"{took:.1f} s" if took is not None else "never"
        good = took is not None and took <= seconds
        return holds("Recovery", f"recovered within {seconds:g} s after its end", observed, good, "timeline.ndjson")

    recovered.__name__ = f"recovered within {seconds:g} s"
    return recovered


EVERYWHERE: tuple[Check, ...] = (
    nothing_lost,
    converged,
    nothing_deleted_is_back,
    no_phantom,
    versions_never_fall,
    legal_steps,
    one_holder,
    nothing_left_leased,
    no_document_in_logs,
    clean_exits,
)
