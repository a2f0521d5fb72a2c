"""Owns I1 to I5 and I9 to I17, pure functions of the evidence; `lease_log` and `joined_documents` have the rest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from labs.checks import holds, nobody
from labs.experiment import Finding
from labs.ledger import Entry
from labs.producing import CANARY
from tests.nemesis.evidence import Evidence
from tests.nemesis.ground import INDEX
from tests.nemesis.joined_documents import as_the_view_says
from tests.nemesis.lease_log import attempts_are_bounded, fenced, legal_steps, one_lease

Check = Callable[[Evidence], Finding]
MOST_MEGABYTES, MOST_FILES, MOST_CONNECTIONS = 350, 120, 90
MOST_IDLE_SECONDS = 1.0


def nothing_lost(found: Evidence) -> Finding:
    states = Counter(found.state(entry.id) for entry in found.committed)
    lost = [entry.id for entry in found.committed if found.state(entry.id) not in ("done", "pruned")]
    told = ", ".join(f"{n} {state}" for state, n in sorted(states.items()))
    return nobody("I1 nothing lost", "every committed event ended as done", told, lost, "ledger, events, steps")


def nothing_made_up(found: Evidence) -> Finding:
    rows = [id for id in found.known if id not in found.by_id]
    phantoms = [name for name, doc in found.documents.items() if doc.get("phantom")]
    told = f"{len(rows)} events and {len(phantoms)} documents that nobody wrote"
    return holds("I2 nothing made up", "no event and no document without a producer", told, not rows + phantoms, "")


def _differs(found: Evidence, entry: Entry) -> bool:
    doc = found.documents.get(entry.document, {})
    return (doc.get("version"), doc.get("digest")) != (entry.version, entry.digest)


def stale(found: Evidence) -> list[str]:
    return [entry.id for entry in found.newest.values() if entry.op == "upsert" and _differs(found, entry)]


def converged(found: Evidence) -> Finding:
    alive = sum(entry.op == "upsert" for entry in found.newest.values())
    wrong = stale(found)
    drift = found.about["final_verify"]["code"]
    told = f"{alive} documents compared, {len(wrong)} differ; `outbox verify` exits with {drift}"
    expected = "body and version of every document are its newest commit's"
    if drift != 0:
        return holds("I3 convergence", expected, told, False, "documents, ledger, about")
    return nobody("I3 convergence", expected, told, wrong, "documents, ledger")


def resurrected(found: Evidence) -> list[str]:
    """At the end, by a full comparison."""
    deleted = [entry for entry in found.newest.values() if entry.op == "delete"]
    return [entry.id for entry in deleted if found.documents.get(entry.document, {}).get("found")]


def ghosts(found: Evidence) -> list[str]:
    """Seen in between: a document at an older version than a delete that was done before that look."""
    versions: dict[str, int] = {}
    wrong: list[str] = []
    for line in found.seen:
        for name in [*line["changed"], *(versions if line.get("final") else ())]:
            known = versions.get(name, 0)
            newer = [v for at, v in found.deletes_done.get(name, ()) if at < line["before"] and v > known > 0]
            if newer:
                wrong.append(f"{name} at {known}, deleted at {max(newer)}")
        versions |= line["changed"]
    return wrong


def nothing_deleted_is_back(found: Evidence) -> Finding:
    back, seen = resurrected(found), ghosts(found)
    deleted = sum(entry.op == "delete" for entry in found.newest.values())
    told = f"{deleted} deleted, {len(back)} are back; in {found.about['looks']} looks {len(seen)} seen after its delete"
    ok = not back and not seen
    return holds("I4 no resurrection", "what was deleted is absent, and stays so", told, ok, "documents, seen")


def versions_never_fall(found: Evidence) -> Finding:
    """Within one life of Elasticsearch and one index: what a crash had not synced was not acknowledged either."""
    highest: Counter[tuple[object, object, str]] = Counter()
    fell: list[str] = []
    for line in found.seen:
        for name, version in line["changed"].items():
            key = line["life"], line["index"], name
            if 0 < version < highest[key]:
                fell.append(f"{name} from {highest[key]} to {version}")
            highest[key] = max(highest[key], version)
    told = f"{len({name for _, _, name in highest})} documents followed, {len(fell)} fell {fell[:1] or ''}"
    return holds("I5 versions never fall", "a document's version only grows", told, not fell, "seen")


def outages_fail_nothing(found: Evidence) -> Finding:
    failed = [step for step in found.steps if step["new_status"] == "failed"]
    suspects = sum(step["dead_reason"] == "crash_suspect" for step in failed)
    wrong = [
        step["event_id"]
        for step in failed
        if step["dead_reason"] != "crash_suspect"
        and (step["dead_reason"] != "non_retryable" or not found.may_be_refused(step["event_id"]))
    ]
    told = f"{len(failed) - suspects} refused documents, {suspects} crash suspects, {len(wrong)} for another cause"
    return nobody("I10 outages fail nothing", "only refused documents fail", told, wrong, "steps")


def it_drains(found: Evidence) -> Finding:
    since = found.about["healed"] + found.about["lease_seconds"] + 6
    stuck = [line for line in found.timeline if line["at"] > since and line.get("stuck")]
    left = [row for row in found.events.values() if row["status"] == "processing"] + found.rows("leases")
    late = [problem for problem in found.about["problems"] if problem.startswith("not drained")]
    told = f"{found.about.get('backlog', '?')} open at the heal, drained in {found.about.get('drain_seconds', '?')} s,"
    told += f" {len(stuck)} looks saw a stuck row, {len(left)} left leased"
    ok = not stuck and not left and not late
    return holds("I11 liveness", "the backlog drains, nothing stays leased", told, ok, "timeline, events")


def audit_is_complete(found: Evidence) -> Finding:
    moved = Counter(
        step["event_id"] for step in found.steps if (step["old_status"], step["new_status"]) == ("failed", "pending")
    )
    written = Counter(row["event_id"] for row in found.rows("audit") if row["action"] == "REPLAY_BATCH_ITEM")
    chain = found.about["audit_verify"]["code"]
    told = f"{moved.total()} replays, {written.total()} audit rows, the chain {'holds' if chain == 0 else 'is broken'}"
    return holds("I12 audit", "one audit row a replay, a chain that holds", told, moved == written and chain == 0, "")


def counters_are_true(found: Evidence) -> Finding:
    counted, steps = found.about["coda_counted"], found.about["coda_steps"]
    told = f"{counted:.0f} counted, {steps} steps to done"
    ok = bool(counted == steps and steps)
    return holds("I13 metrics", "in the calm coda they are the same", told, ok, "about")


def no_secret_in_logs(found: Evidence) -> Finding:
    marked = [log.name for log in found.logs if CANARY in log.read_text(encoding="utf-8", errors="replace")]
    said, password = found.about["canary_seen"], found.about["password_seen"]
    told = f"{len(found.logs)} logs and pages, {found.about['answers']} answers of commands:"
    told += f" {len(marked) + said} hold a document, {password} hold the password"
    ok = not marked and said == 0 and password == 0
    return holds("I14 no secret, no payload", "neither is in any log, page or answer", told, ok, "logs/, about")


def resources_are_bounded(found: Evidence) -> Finding:
    sizes = [size for line in found.timeline for size in line["workers"].values() if size]
    memory, files = max(size[0] for size in sizes), max(size[1] for size in sizes)
    connections = max(line.get("connections", 0) for line in found.timeline)
    idle = max((line.get("idle_in_transaction", 0.0) for line in found.timeline if line["calm"]), default=0.0)
    told = f"{memory} MB, {files} files, {connections} connections, idle in transaction {idle:.2f} s when calm"
    ok = (
        memory <= MOST_MEGABYTES
        and files <= MOST_FILES
        and connections <= MOST_CONNECTIONS
        and idle < MOST_IDLE_SECONDS
    )
    expected = (
        f"at most {MOST_MEGABYTES} MB, {MOST_FILES} files, {MOST_CONNECTIONS} connections, {MOST_IDLE_SECONDS:g} s"
    )
    return holds("I15 resources", expected, told, ok, "timeline")


def neighbours_of_the_bad(found: Evidence) -> Finding:
    """Whoever is in a batch with a refused document is not refused for it."""
    batches: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for step in found.steps:
        if step["old_status"] == "processing" and step["new_status"] and step["app"] != "outbox-chores":
            batches[step["old_token"]].append((step["event_id"], step["new_status"]))
    mixed = [batch for batch in batches.values() if len(batch) > 1 and any(status == "failed" for _, status in batch)]
    beside = [(id, status) for batch in mixed for id, status in batch if not found.may_be_refused(id)]
    wrong = [id for id, status in beside if status == "failed"]
    done = sum(status == "done" for _, status in beside)
    told = f"{len(mixed)} batches with a refused document, {len(beside)} neighbours, {done} of them done in that pass"
    return nobody("I16 batch isolation", "no neighbour fails with it", told, wrong, "steps")


def nobody_elses(found: Evidence) -> Finding:
    targets: dict[str, int] = found.about["wire_targets"]
    foreign = [name for name in targets if name != INDEX and not name.startswith(f"{INDEX}-v")]
    same = found.about["neighbour_before"] == found.about["neighbour_after"]
    strangers = found.about["wire_strangers"]
    told = f"{found.about['wire_sent']} actions to {', '.join(sorted(targets))}; the neighbour is "
    told += "unchanged" if same else "CHANGED"
    ok = same and not foreign and not strangers
    return holds("I17 isolation", "only our index and our ids are written", told, ok, "about (wire, neighbour)")


def clean_exits(found: Evidence) -> Finding:
    codes: dict[str, int | None] = found.about["exit_codes"]
    last = set(found.about.get("last_workers", codes))
    # In the storm PostgreSQL may be down while one drains: it says so, and exits with 3.
    bad = {name: code for name, code in codes.items() if code not in ((0,) if name in last else (0, 3))}
    crashed = found.about["crashed_commands"]
    told = f"{len(codes)} drained, {len(bad)} with another code than 0 {bad or ''}; {len(crashed)} commands fell over"
    return holds("clean exits", "workers drain with 0, no command falls over", told, not bad and not crashed, "")


CHECKS: Sequence[Check] = (
    nothing_lost,
    nothing_made_up,
    converged,
    nothing_deleted_is_back,
    versions_never_fall,
    one_lease,
    fenced,
    legal_steps,
    attempts_are_bounded,
    outages_fail_nothing,
    it_drains,
    audit_is_complete,
    counters_are_true,
    no_secret_in_logs,
    resources_are_bounded,
    neighbours_of_the_bad,
    nobody_elses,
    as_the_view_says,
    clean_exits,
)
