"""Owns the verdict over a nemesis with Kafka as the source. A record that was done leaves no row: documents say whether
it arrived. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from labs.checks import checked, holds, nobody
from labs.experiment import CheckResult
from labs.invariants import (
    clean_exits,
    converged,
    no_document_in_logs,
    nothing_deleted_is_back,
    nothing_left_leased,
    nothing_made_up,
    versions_never_fall,
)
from tests.nemesis.evidence import Evidence
from tests.nemesis.invariants import (
    audit_is_complete,
    no_command_crashes,
    no_ghost_is_seen,
    nobody_elses,
    nothing_secret_in_replies,
    resources_are_bounded,
    verified,
)
from tests.nemesis.joined_documents import as_the_view_says, in_one_place
from tests.nemesis.schedule import KAFKA_KINDS
from tests.nemesis.verdict import NemesisVerdict, counted, decide, numbered

BROKER_SECONDS = 9.0  # after a broker's absence its group has other things to do
BROKERS = ("broker_kill", "broker_stop")
TAKEN = ("kill_9", "sigstop")


class KafkaEvidence(Evidence):
    """Of a log that is only inserted into: an event is known by its commit, or by the log where that had no answer."""

    @cached_property
    def known(self) -> set[str]:
        return {entry.id for entry in self.attempted if entry.committed} | {row["id"] for row in self.rows("strays")}

    @cached_property
    def stored(self) -> list[dict[str, Any]]:
        """The rows that PostgreSQL has: what was retried, failed or deleted."""
        return self.rows("stored")

    @cached_property
    def deletes_done(self) -> dict[str, list[tuple[float, int]]]:
        found: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for row in self.stored:
            if row["op"] == "delete" and row["status"] == "done" and row["done_at"] is not None:
                found[row["document"]].append((float(row["done_at"]), int(row["event_version"])))
        return found

    @cached_property
    def takeovers(self) -> list[tuple[float, bool]]:
        """Seconds of each (-1: never), and whether a broker was down around it. Where another worker was killed or
        stopped meanwhile, from that moment: it may be the one that the group had given the partitions to, and its
        session has to end too."""
        down = [
            (act["numbers"].get("from", act["began"]), act["numbers"].get("until", act["ended"]) + BROKER_SECONDS)
            for act in self.acts
            if act["kind"] in BROKERS
        ]
        taken = [act for act in self.acts if act["kind"] in TAKEN and "takeover" in act["numbers"]]
        limit = float(self.about["takeover_seconds"])
        deaths = [float(act["numbers"].get("at", act["began"])) for act in taken]
        return [
            (
                _since_the_last(deaths, at, float(act["numbers"]["takeover"])),
                any(at < end and begin < at + limit for begin, end in down),
            )
            for act, at in zip(taken, deaths, strict=True)
        ]


def _since_the_last(deaths: Sequence[float], at: float, took: float) -> float:
    return took if took < 0 else at + took - max((each for each in deaths if at <= each < at + took), default=at)


def lost(found: KafkaEvidence) -> list[str]:
    """The newest commit is an upsert and there is no document; or a stored row has not ended."""
    missing = [
        entry.id
        for entry in found.newest.values()
        if entry.op == "upsert"
        and entry.document not in found.unsettled
        and not found.documents.get(entry.document, {}).get("found")
    ]
    return missing + [str(row["id"]) for row in found.stored if row["status"] != "done"]


def nothing_lost(found: KafkaEvidence) -> CheckResult:
    gone = lost(found)
    told = f"{len(found.committed)} committed events of {len(found.newest)} documents; {len(found.stored)} stored rows;"
    told += f" {len(gone)} missing or not finished"
    expected = "every document is there, and every stored row is done"
    return nobody("Nothing is lost", expected, told, gone, "ledger, documents, stored")


def stale(found: KafkaEvidence) -> list[str]:
    """It is there, and not its newest commit."""
    there = [
        (entry, found.documents[entry.document])
        for entry in found.newest.values()
        if entry.op == "upsert" and found.documents.get(entry.document, {}).get("found")
    ]
    return [entry.id for entry, doc in there if (doc["version"], doc["digest"]) != (entry.version, entry.digest)]


def taken_over_in_time(found: KafkaEvidence) -> CheckResult:
    """Where the group's brokers were there. A broker that is down may be the one that would have to notice."""
    limit = float(found.about["takeover_seconds"])
    judged = [took for took, beside in found.takeovers if not beside]
    others = [took for took, beside in found.takeovers if beside]
    late = [took for took in judged if took < 0 or took > limit]
    told = f"{len(judged)} takeovers, at most {max(judged, default=0):.1f} s, {len(late)} too late;"
    told += f" beside a broker's absence {len(others)}, at most {max(others, default=0):.1f} s"
    expected = f"others have a dead worker's partitions within {limit:g} s"
    return holds("Taken over in time", expected, told, not late, "acts.ndjson")


def only_refused_fail(found: KafkaEvidence) -> CheckResult:
    rows = found.about.get("failed_rows", [])
    wrong = [str(id) for id, reason in rows if reason != "crash_suspect" and not found.may_be_refused(str(id))]
    told = f"{len(rows)} rows had failed before the last replay, {len(wrong)} for another cause than their document"
    return nobody("Outages fail nothing", "only refused documents fail", told, wrong, "about.json")


def it_drains(found: KafkaEvidence) -> CheckResult:
    late = [problem for problem in found.about["problems"] if problem.startswith("not drained")]
    told = f"{found.about.get('backlog', '?')} open at the heal, drained in {found.about.get('drain_seconds', '?')} s"
    expected = "the log is captured, the topic read to its end, no row waits"
    return holds("It drains", expected, told, not late, "about.json")


def all_are_well(found: KafkaEvidence) -> CheckResult:
    ill = found.about["ill_workers"]
    told = f"{len(ill)} workers whose /healthz reports an error" + (f": {', '.join(ill)}" if ill else "")
    return holds("Every worker is well", "after the drain every /healthz is fine", told, not ill, "about.json, logs/")


def no_gap(found: KafkaEvidence) -> CheckResult:
    gaps = found.said("stream.gap")
    return holds("No gap", "no offset is gone", f"{len(gaps)} gaps", not gaps, "logs/")


CHECKS: Sequence[tuple[str, Callable[[KafkaEvidence], CheckResult]]] = (
    ("I1", nothing_lost),
    ("I1", no_gap),
    ("I2", nothing_made_up),
    ("I3", converged),
    ("I3", verified),
    ("I4", nothing_deleted_is_back),
    ("I4", no_ghost_is_seen),
    ("I5", versions_never_fall),
    ("I7", taken_over_in_time),
    ("I10", only_refused_fail),
    ("I11", it_drains),
    ("I11", nothing_left_leased),
    ("I11", all_are_well),
    ("I12", audit_is_complete),
    ("I14", no_document_in_logs),
    ("I14", nothing_secret_in_replies),
    ("I15", resources_are_bounded),
    ("I17", nobody_elses),
    ("I18", as_the_view_says),
    ("I19", in_one_place),
    ("", clean_exits),
    ("", no_command_crashes),
)


def judge(found: KafkaEvidence) -> NemesisVerdict:
    judged = any(not beside for _, beside in found.takeovers)
    return decide(
        found,
        [numbered(number, checked(check, found)) for number, check in CHECKS],
        KAFKA_KINDS,
        {"stored rows": bool(found.stored), "takeovers": judged},
        {**counted(found, len(lost(found)), len(stale(found))), "takeovers": len(found.takeovers)},
    )
