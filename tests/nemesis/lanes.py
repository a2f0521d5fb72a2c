"""Owns what a lane of its own adds to the verdict of a storm: the kinds of its acts, and checks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from labs.checks import holds, nobody
from labs.experiment import CheckResult
from tests.nemesis.evidence import Evidence
from tests.nemesis.schedule import DECKS, FAULTS, PEOPLE

Check = Callable[[Evidence], CheckResult]
# A worker that was given a connection to a server which accepts no writes, or which was replaced, leaves it by then.
MOST_SECONDS_THERE = 2.0

FAILOVER_DECKS: Mapping[str, tuple[str, ...]] = {
    "workers": ("kill_9", "sigterm"),
    "failover": ("fo_clean", "fo_lag", "fo_standby", "fo_second", "fo_switch"),
    "elasticsearch": ("es_cut", "es_lose_reply"),
    "people": ("replay", "verify"),
}
CLUSTER_DECKS: Mapping[str, tuple[str, ...]] = {
    "workers": ("kill_9", "sigterm"),
    "cluster": ("cl_alone", "cl_master", "cl_half", "cl_one_way", "cl_slow", "cl_kill", "cl_disk"),
    "people": ("replay", "verify"),
}
STARVATION_DECKS: Mapping[str, tuple[str, ...]] = {
    "workers": ("st_cpu", "st_files", "kill_9", "clock_shift"),
    "starvation": ("st_memory", "st_pg_disk", "st_es_disk", "st_clock"),
    "people": ("replay", "verify"),
}
# Of a worker that can do nothing: more is a hot loop. Of one core, and lines of its log per second.
MOST_CORES, MOST_LINES = 0.35, 20.0


@dataclass(frozen=True, slots=True)
class OwnLane:
    """`decks`: what is done in it. The lane of people and its acts have their names in every lane."""

    kinds: Sequence[str]
    checks: Sequence[tuple[str, Check]] = ()
    decks: Mapping[str, Sequence[str]] = field(default_factory=lambda: DECKS)


def _gaps(found: Evidence) -> dict[str, Any]:
    return dict(found.about.get("gaps", {}))


def gaps_are_explained(found: Evidence) -> CheckResult:
    """Before anyone repaired anything: only what a server lost may differ, and after the last promotion some does."""
    gaps = _gaps(found)
    told = f"{gaps.get('withdrawn', 0)} commits lost by promotions, {gaps.get('found', 0)} documents differed then,"
    told += f" {len(gaps.get('unexplained', []))} of them without a lost commit"
    ok = bool(gaps) and not gaps["unexplained"] and gaps["found"] > 0
    return holds("Only what a server lost differs", "no other document differs", told, ok, "about.json (gaps)")


def gaps_are_said(found: Evidence) -> CheckResult:
    """`verify` names each document that differs, and the doctor says why."""
    gaps = _gaps(found)
    told = f"{gaps.get('found', 0)} documents differed, `outbox verify` exits with {gaps.get('verify')}:"
    told += f" {gaps.get('counts')}; it missed {len(gaps.get('unsaid', []))}; doctor: {gaps.get('doctor')}"
    ok = bool(gaps) and not gaps["unsaid"] and (gaps["verify"] != 0) == bool(gaps["found"])
    return holds("Every gap is said", "verify names every document that differs", told, ok, "about.json (gaps)")


def nothing_else_differs(found: Evidence) -> CheckResult:
    """Of a cluster: after all faults but the promotion of an old copy, which may lose what was acknowledged."""
    before = found.about.get("before", ["not compared"])
    promoted, gaps = found.about.get("stale_promoted", 0), _gaps(found)
    told = f"{len(before)} documents differed before {promoted} old copies were promoted; {gaps.get('written', 0)}"
    told += f" commits were written meanwhile, and the server lost {gaps.get('found', 0)} documents of them"
    ok = not before and promoted > 0 and gaps.get("found", 0) > 0
    return holds(
        "Only a promoted old copy loses", "nothing differs before, and something after", told, ok, "about.json"
    )


def rows_are_the_truth(found: Evidence) -> CheckResult:
    """By the business rows, whatever versions say: an event that was written last and has the lower version is lost."""
    rows = {row["_id"]: row["digest"] for row in found.rows("rows")}
    ours = {entry.document for entry in found.committed if entry.op in ("upsert", "delete")}
    there = {name: doc["digest"] for name, doc in found.documents.items() if doc.get("found") and name in ours}
    wrong = sorted(name for name in rows.keys() | there.keys() if rows.get(name) != there.get(name))
    told = f"{len(rows)} rows and {len(there)} documents compared, {len(wrong)} differ {wrong[:5]}"
    return holds(
        "Documents are their rows", "each row's document, and no other", told, bool(rows) and not wrong, "rows"
    )


def _stays(found: Evidence, kind: str) -> list[dict[str, Any]]:
    return [act for act in found.acts if act["kind"] == kind and "stayed" in act["numbers"]]


def nobody_on_a_standby(found: Evidence) -> CheckResult:
    acts = [*_stays(found, "fo_standby"), *_stays(found, "fo_second")]
    longest = max((float(act["numbers"]["stayed"]) for act in acts), default=0.0)
    wrote = sum(int(act["numbers"]["wrote"]) for act in acts)
    told = f"{len(acts)} old primaries came back; a worker was connected for {longest:.1f} s at most, {wrote} writes"
    ok = longest < MOST_SECONDS_THERE and wrote == 0
    expected = f"no write there, no connection for {MOST_SECONDS_THERE:g} s"
    return holds("Nobody works on an old primary", expected, told, ok, "acts.ndjson")


def sequences_are_watched(found: Evidence) -> CheckResult:
    """After a switch-over to a database whose sequences lag behind."""
    acts = [act for act in found.acts if act["kind"] == "fo_switch" and act["bit"]]
    silent = [act["victim"] for act in acts if not act["numbers"]["raised"]]
    told = f"{len(acts)} switch-overs with sequences that lag, {len(acts) - len(silent)} times the sequence was raised"
    return nobody("Lagging sequences are raised", "each is raised, and said", told, silent, "acts.ndjson")


def the_shipped_memory_suffices(found: Evidence) -> CheckResult:
    groups = dict(found.about.get("groups", {}))
    limit, peak, kills = (int(groups.get(name, 0)) for name in ("limit", "peak", "oom_kills"))
    told = f"{peak >> 20} MiB at most of {limit >> 20}, {kills} workers killed for memory"
    ok = bool(limit) and not kills
    return holds("The shipped limit suffices", "no worker is killed for memory", told, ok, "about.json (groups)")


def no_hot_loop(found: Evidence) -> CheckResult:
    acts = [act for act in found.acts if "cores" in act["numbers"]]
    cores = max((float(act["numbers"]["cores"]) for act in acts), default=0.0)
    lines = max((float(act["numbers"]["lines"]) for act in acts), default=0.0)
    told = f"in {len(acts)} spells a worker took {cores:.2f} of a core at most and wrote {lines:.1f} lines per second"
    ok = bool(acts) and cores <= MOST_CORES and lines <= MOST_LINES
    expected = f"at most {MOST_CORES} of a core and {MOST_LINES:g} lines per second"
    return holds("No hot loop", expected, told, ok, "acts.ndjson")


def recovers_alone(found: Evidence) -> CheckResult:
    """No worker ends, and each is well again when it has what it needs."""
    acts = [act for act in found.acts if "well" in act["numbers"]]
    ill = [act for act in acts if not act["numbers"]["well"] or not act["numbers"].get("alive", True)]
    first = f" (first: {ill[0]['told']})" if ill else ""
    told = f"{len(acts)} spells, {len(ill)} after which a worker had ended or was not well{first}"
    return holds("Recovery without a person", "each is well by itself", told, bool(acts) and not ill, "acts.ndjson")


STORM = OwnLane((*FAULTS, *PEOPLE))
FAILOVER = OwnLane(
    tuple(dict.fromkeys(kind for deck in FAILOVER_DECKS.values() for kind in deck)),
    (
        ("F1", gaps_are_explained),
        ("F2", gaps_are_said),
        ("F3", rows_are_the_truth),
        ("F4", nobody_on_a_standby),
        ("F5", sequences_are_watched),
    ),
    FAILOVER_DECKS,
)
CLUSTER = OwnLane(
    tuple(dict.fromkeys(kind for deck in CLUSTER_DECKS.values() for kind in deck)),
    (("C1", nothing_else_differs), ("C2", gaps_are_said), ("C3", rows_are_the_truth)),
    CLUSTER_DECKS,
)
STARVATION = OwnLane(
    tuple(dict.fromkeys(kind for deck in STARVATION_DECKS.values() for kind in deck)),
    (
        ("S1", the_shipped_memory_suffices),
        ("S2", no_hot_loop),
        ("S3", recovers_alone),
        ("S4", rows_are_the_truth),
    ),
    STARVATION_DECKS,
)
LANES = {"failover": FAILOVER, "cluster": CLUSTER, "starvation": STARVATION}
