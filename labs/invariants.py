"""The invariants of labs and nemesis, each a pure function of a history. I1 to I14 are those of docs/reliability.md."""

from __future__ import annotations

from collections import Counter
from typing import Any

from labs.addresses import PEOPLE
from labs.checks import holds, nobody
from labs.experiment import Check, CheckResult
from labs.history import History
from labs.ledger import LedgerEntry
from labs.producing import CANARY
from labs.record import Record

# Its own table, not the product's: a step that the product should not know is found too. A test compares both.
LEGAL = {
    ("pending", "processing"),
    ("processing", "done"),
    ("processing", "pending"),
    ("processing", "failed"),
    ("failed", "pending"),
    ("pending", "discarded"),
    ("failed", "discarded"),
    ("discarded", "pending"),
    ("done", None),  # pruned
    ("discarded", None),
}
RECLAIMER = "outbox-chores"  # the name of its connection


def lost(history: History) -> list[str]:
    return [entry.id for entry in history.committed if history.state(entry.id) not in history.ENDS]


def nothing_lost(history: History) -> CheckResult:
    """I1: every committed event ended, visibly."""
    states = Counter(history.state(entry.id) for entry in history.committed)
    missing = lost(history)
    told = ", ".join(f"{n} {state}" for state, n in sorted(states.items()))
    observed = f"{len(history.committed)} committed, {len(missing)} missing or not finished ({told})"
    expected = f"every committed event is {' or '.join(sorted(history.ENDS))}"
    return nobody("Nothing is lost", expected, observed, missing, "ledger.ndjson, events.ndjson, steps.ndjson")


def made_up(history: History) -> tuple[list[str], list[str]]:
    """Events and documents that nobody wrote."""
    written = {entry.document for entry in history.committed}
    there = (name for name, doc in history.documents.items() if doc.get("found") or doc.get("phantom"))
    return [id for id in history.known if id not in history.by_id], [name for name in there if name not in written]


def nothing_made_up(history: History) -> CheckResult:
    """I2: no event without a producer, no document without a committed event."""
    events, documents = made_up(history)
    observed = f"{len(events)} events and {len(documents)} of {len(history.documents)} documents that nobody wrote"
    expected = "no event and no document without a producer"
    ok = not events and not documents
    return holds("Nothing is made up", expected, observed, ok, "ledger.ndjson, events.ndjson, documents.ndjson")


def _settled(history: History, op: str) -> list[LedgerEntry]:
    """The newest commits of this kind."""
    return [entry for name, entry in history.newest.items() if entry.op == op and name not in history.unsettled]


def stale(history: History) -> list[str]:
    return [entry.id for entry in _settled(history, "upsert") if not _is(history, entry)]


def _is(history: History, entry: LedgerEntry) -> bool:
    found = history.documents.get(entry.document, {})
    return (found.get("version"), found.get("digest")) == (entry.version, entry.digest)


def converged(history: History) -> CheckResult:
    """I3: body and version of every settled document are those of its newest commit."""
    settled, wrong = len(_settled(history, "upsert")), stale(history)
    observed = f"{settled} documents compared, {len(wrong)} differ"
    expected = "each document is its newest commit, body and version"
    found = nobody("Convergence", expected, observed, wrong, "documents.ndjson, ledger.ndjson")
    return found if settled else holds("Convergence", expected, "nothing to compare", False, "documents.ndjson")


def resurrected(history: History) -> list[str]:
    """At the end, by a full comparison."""
    deleted = _settled(history, "delete")
    return [entry.id for entry in deleted if history.documents.get(entry.document, {}).get("found")]


def nothing_deleted_is_back(history: History) -> CheckResult:
    """I4: what was deleted last is absent."""
    back = resurrected(history)
    observed = f"{len(_settled(history, 'delete'))} deleted, {len(back)} are back"
    return nobody("Nothing deleted comes back", "deleted documents are absent", observed, back, "documents.ndjson")


def versions_never_fall(history: History) -> CheckResult:
    """I5, for the documents that are followed while it runs."""
    highest: Counter[tuple[object, str]] = Counter()
    fell: dict[str, str] = {}
    for life, versions in history.sightings():
        for name, version in versions.items():
            if 0 < version < highest[life, name]:
                fell.setdefault(name, f"{name} from {highest[life, name]} to {version}")
            highest[life, name] = max(highest[life, name], version)
    observed = f"{len({name for _, name in highest})} documents followed, {len(fell)} decreased"
    observed += f" (first: {next(iter(fell.values()))})" if fell else ""
    expected = "a document's version only increases"
    event = next((entry.id for entry in history.committed if entry.document in fell), None)
    return CheckResult("Versions never decrease", expected, observed, not fell, "timeline.ndjson, seen.ndjson", event)


def double_leases(history: History) -> list[str]:
    """Claims of a row that somebody holds."""
    return [
        step["event_id"]
        for step in history.steps
        if step["new_status"] == "processing"
        and (step["old_status"] != "pending" or step["old_token"] == step["new_token"])
    ]


def one_lease(history: History) -> CheckResult:
    """I6: no worker claims a row with a lease."""
    claims = sum(step["new_status"] == "processing" for step in history.steps)
    double = double_leases(history)
    observed = f"{claims} claims, {len(double)} of a row that was held"
    return nobody("One lease at a time", "only pending rows are claimed", observed, double, "steps.ndjson")


def one_holder(history: History) -> CheckResult:
    """I7: a lane moves only what it has claimed itself; a reclaimer moves only what has expired."""
    holder = {step["new_token"]: step["who"] for step in history.steps if step["new_status"] == "processing"}
    exits = [step for step in history.steps if step["old_status"] == "processing"]
    wrong = [step["event_id"] for step in exits if _is_foreign(step, holder)]
    back = sum(step["app"] == RECLAIMER for step in exits)
    late = sum(int(fact.get("counts", {}).get("lost", 0)) for fact in history.said("lease.lost"))
    observed = f"{len(exits)} rows left processing, {back} reclaimed, {len(wrong)} by another than the holder"
    observed += f"; {late} late settles changed nothing"
    expected = "only the lease holder moves a row, or a reclaimer after the lease"
    return nobody("One holder at a time", expected, observed, wrong, "steps.ndjson, logs/")


def _is_foreign(step: dict[str, Any], holder: dict[str, str | None]) -> bool:
    if step["app"] == RECLAIMER or step["who"] == PEOPLE:  # verify and rebuild reclaim what has expired, too
        return float(step["lease_left"] or 0) > 0
    return step["who"] is None or holder.get(step["old_token"]) != step["who"]


def legal_steps(history: History) -> CheckResult:
    """I8: only steps of the state machine; a replay starts over, and is counted."""
    wrong = [step for step in history.steps if not _is_legal(step)]
    first = f" (first: {wrong[0]['old_status']} to {wrong[0]['new_status']})" if wrong else ""
    observed = f"{len(history.steps)} steps, {len(wrong)} forbidden{first}"
    events = [step["event_id"] for step in wrong]
    return nobody("Only legal steps", "only transitions of the state machine", observed, events, "steps.ndjson")


def _is_legal(step: dict[str, Any]) -> bool:
    arrow = step["old_status"], step["new_status"]
    replayed = arrow != ("failed", "pending") or (step["attempts"] == 0 and step["replays"] > 0)
    return arrow in LEGAL and replayed


def nothing_left_leased(history: History) -> CheckResult:
    """I11 at the end."""
    held = [id for id, row in history.events.items() if row["status"] == "processing"]
    leases = history.rows("leases")
    observed = f"{len(held)} rows processing, {len(leases)} leases"
    expected, where = "no row and no lease is held at the end", "events.ndjson, leases.ndjson"
    return CheckResult("No lease is left", expected, observed, not held and not leases, where, next(iter(held), None))


def counters_are_true(history: History) -> CheckResult:
    """I13, if every daemon ran until the end: the metrics match the transitions of the rows."""
    counted, steps = history.counted
    observed = f"{counted:.0f} counted, {steps} steps"
    expected = "outbox_processed_total is the number of steps to done"
    return holds("Metrics are right", expected, observed, counted == steps > 0, "timeline.ndjson, steps.ndjson")


def no_document_in_logs(history: History) -> CheckResult:
    """I14: a mark that is in every document is in no log line."""
    marked = [path.name for path in history.log_files if CANARY in path.read_text(encoding="utf-8", errors="replace")]
    observed = f"found in {len(marked)} of {len(history.log_files)} logs"
    return holds("No document in a log", "the mark of every document is in no log", observed, not marked, "logs/")


def clean_exits(history: History) -> CheckResult:
    """Every daemon that got SIGTERM exited with 0."""
    codes: dict[str, int | None] = history.about["exit_codes"]
    bad = {name: code for name, code in codes.items() if code not in history.clean_codes(name)}
    observed = f"{len(codes)} ended by SIGTERM, {len(bad)} not cleanly"
    observed += f": {', '.join(f'{name}: {code}' for name, code in bad.items())}" if bad else ""
    ok = bool(codes) and not bad
    return holds("Clean exits", "SIGTERM ends every daemon with 0", observed, ok, f"{history.ABOUT}, logs/")


# Of labs alone


def nothing_failed(record: Record) -> CheckResult:
    """I10: a fault of the environment fails no event."""
    failed = [id for id, row in record.events.items() if row["status"] == "failed"]
    reasons = Counter(str(record.events[id]["error_reason"]) for id in failed)
    observed = f"{len(failed)} failed" + "".join(f", {n} {reason}" for reason, n in reasons.items())
    return nobody("Nothing failed", "this fault makes no event failed", observed, failed, "events.ndjson")


def recovered_within(seconds: float) -> Check:
    def recovered(record: Record) -> CheckResult:
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
    nothing_made_up,
    versions_never_fall,
    legal_steps,
    one_lease,
    one_holder,
    nothing_left_leased,
    no_document_in_logs,
    clean_exits,
)
