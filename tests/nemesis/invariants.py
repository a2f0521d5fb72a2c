"""Owns what the nemesis checks beyond the invariants that it shares with the labs, and the numbers of all. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from labs.checks import holds, nobody
from labs.experiment import CheckResult
from labs.invariants import (
    RECLAIMER,
    clean_exits,
    converged,
    counters_are_true,
    legal_steps,
    no_document_in_logs,
    nothing_deleted_is_back,
    nothing_left_leased,
    nothing_lost,
    nothing_made_up,
    one_holder,
    one_lease,
    versions_never_fall,
)
from tests.nemesis.evidence import Evidence
from tests.nemesis.ground import INDEX
from tests.nemesis.joined_documents import as_the_view_says, in_one_place

Check = Callable[[Evidence], CheckResult]
MOST_MEGABYTES, MOST_FILES, MOST_CONNECTIONS = 350, 120, 90
MOST_IDLE_SECONDS = 1.0
MOST_ABANDONED = 6  # the sixth time a row is called a crash suspect


def verified(found: Evidence) -> CheckResult:
    """The product's own comparison, when all is over, finds no drift."""
    code = found.about["final_verify"]["code"]
    return holds("Verified", "it finds no drift", f"`outbox verify` exits with {code}", code == 0, "about.json")


def ghosts(found: Evidence) -> list[str]:
    """Seen in between: a document at an older version than a delete that was done before that read."""
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


def no_ghost_is_seen(found: Evidence) -> CheckResult:
    seen = ghosts(found)
    told = f"in {found.about['looks']} reads {len(seen)} documents seen after their delete" + (
        f" (first: {seen[0]})" if seen else ""
    )
    return holds("Deleted documents stay deleted", "none is seen after its delete", told, not seen, "seen.ndjson")


def attempts_are_bounded(found: Evidence) -> CheckResult:
    limit = int(found.about["max_attempts"])
    most = max((step["attempts"] or 0 for step in found.steps), default=0)
    abandoned = max((step["abandoned"] or 0 for step in found.steps), default=0)
    wrong = [
        step["event_id"]
        for step in found.steps
        if (step["new_status"] == "pending" and (step["attempts"] or 0) >= limit)
        or (step["abandoned"] or 0) > MOST_ABANDONED
        or ((step["abandoned"] or 0) == MOST_ABANDONED and step["new_status"] == "pending")
    ]
    told = f"{most} attempts and {abandoned} abandonments at most"
    return nobody("Attempts are bounded", f"under {limit} and {MOST_ABANDONED}", told, wrong, "steps.ndjson")


def outages_fail_nothing(found: Evidence) -> CheckResult:
    failed = [step for step in found.steps if step["new_status"] == "failed"]
    suspects = sum(step["dead_reason"] == "crash_suspect" for step in failed)
    wrong = [
        step["event_id"]
        for step in failed
        if step["dead_reason"] != "crash_suspect"
        and (step["dead_reason"] != "non_retryable" or not found.may_be_refused(step["event_id"]))
    ]
    told = f"{len(failed) - suspects} refused documents, {suspects} crash suspects, {len(wrong)} for another cause"
    return nobody("Outages fail nothing", "only refused documents fail", told, wrong, "steps")


def it_drains(found: Evidence) -> CheckResult:
    since = found.about["healed"] + found.about["lease_seconds"] + 6
    stuck = [line for line in found.timeline if line["at"] > since and line.get("stuck")]
    late = [problem for problem in found.about["problems"] if problem.startswith("not drained")]
    told = f"{found.about.get('backlog', '?')} open at the heal, drained in {found.about.get('drain_seconds', '?')} s,"
    told += f" {len(stuck)} samples had a stuck row"
    return holds("It drains", "the backlog drains, no row is stuck", told, not stuck and not late, "timeline.ndjson")


def audit_is_complete(found: Evidence) -> CheckResult:
    moved = Counter(
        step["event_id"] for step in found.steps if (step["old_status"], step["new_status"]) == ("failed", "pending")
    )
    written = Counter(row["event_id"] for row in found.rows("audit") if row["action"] == "REPLAY_BATCH_ITEM")
    chain = found.about["audit_verify"]["code"]
    told = f"{moved.total()} replays, {written.total()} audit rows, the chain {'holds' if chain == 0 else 'is broken'}"
    return holds(
        "Audit is complete", "one audit row per replay, a chain that holds", told, moved == written and chain == 0, ""
    )


def resources_are_bounded(found: Evidence) -> CheckResult:
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
    return holds("Resources are bounded", expected, told, ok, "timeline")


def neighbours_of_the_bad(found: Evidence) -> CheckResult:
    """Whoever is in a batch with a refused document is not refused for it."""
    batches: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for step in found.steps:
        if step["old_status"] == "processing" and step["new_status"] and step["app"] != RECLAIMER:
            batches[step["old_token"]].append((step["event_id"], step["new_status"]))
    mixed = [batch for batch in batches.values() if len(batch) > 1 and any(status == "failed" for _, status in batch)]
    beside = [(id, status) for batch in mixed for id, status in batch if not found.may_be_refused(id)]
    wrong = [id for id, status in beside if status == "failed"]
    done = sum(status == "done" for _, status in beside)
    told = f"{len(mixed)} batches with a refused document, {len(beside)} neighbours, {done} of them done in that pass"
    return nobody("Neighbours of the refused", "no neighbour fails with it", told, wrong, "steps")


def nobody_elses(found: Evidence) -> CheckResult:
    targets: dict[str, int] = found.about["wire_targets"]
    foreign = [name for name in targets if name != INDEX and not name.startswith(f"{INDEX}-v")]
    same = found.about["neighbour_before"] == found.about["neighbour_after"]
    strangers = found.about["wire_strangers"]
    told = f"{found.about['wire_sent']} actions to {', '.join(sorted(targets))}; the neighbour is "
    told += "unchanged" if same else "CHANGED"
    ok = same and not foreign and not strangers
    return holds("Nobody else's index", "only our index and our ids are written", told, ok, "about (wire, neighbour)")


def nothing_secret_in_replies(found: Evidence) -> CheckResult:
    said, password = found.about["canary_seen"], found.about["password_seen"]
    told = f"{len(found.log_files)} logs and pages, {found.about['answers']} replies of commands:"
    told += f" {password} hold the password, {said} replies hold a document"
    expected = "no password in a log, page or reply, no document in a reply"
    return holds("No secret, no payload", expected, told, said == 0 and password == 0, "about.json")


def no_command_crashes(found: Evidence) -> CheckResult:
    crashed = found.about["crashed_commands"]
    told = f"{len(crashed)} commands crashed"
    return holds("No command crashes", "every command ends with a code of its own", told, not crashed, "about.json")


CHECKS: Sequence[tuple[str, Check]] = (
    ("I1", nothing_lost),
    ("I2", nothing_made_up),
    ("I3", converged),
    ("I3", verified),
    ("I4", nothing_deleted_is_back),
    ("I4", no_ghost_is_seen),
    ("I5", versions_never_fall),
    ("I6", one_lease),
    ("I7", one_holder),
    ("I8", legal_steps),
    ("I9", attempts_are_bounded),
    ("I10", outages_fail_nothing),
    ("I11", it_drains),
    ("I11", nothing_left_leased),
    ("I12", audit_is_complete),
    ("I13", counters_are_true),
    ("I14", no_document_in_logs),
    ("I14", nothing_secret_in_replies),
    ("I15", resources_are_bounded),
    ("I16", neighbours_of_the_bad),
    ("I17", nobody_elses),
    ("I18", as_the_view_says),
    ("I19", in_one_place),
    ("", clean_exits),
    ("", no_command_crashes),
)
