"""Judges a nemesis from docs/model/history.md alone, and imports nothing of ours: `python second_judge.py FILE`."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Line = dict[str, Any]
RULES = tuple(f"I{n}" for n in (*range(1, 12), 17, 18, 19))
ARROWS = """
 pending>processing processing>done processing>pending processing>failed failed>pending pending>discarded
 failed>discarded discarded>pending done>None discarded>None
"""
MOST_ABANDONED = 6


class History:
    """The lines by kind, and what the format says follows from them."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.of: dict[str, list[Line]] = defaultdict(list)
        self.steps: list[Line] = []
        for line in lines:
            self.of[line["kind"]].append(line)
            if line["kind"] in ("claim", "settle"):
                self.steps.append(line)
        self.run = self.of["run"][0]
        self.kafka = self.run["source"] == "kafka"
        self.seen_events = {line["event"] for line in (*self.steps, *self.of["event"])}
        # A commit without an answer happened if, and only if, its event was seen.
        self.commits = [c for c in self.of["commit"] if c["answered"] or c["event"] in self.seen_events]
        self.commit_of = {c["event"]: c for c in self.commits}
        self.last: dict[str, Line] = {}
        for c in self.commits:
            before = self.last.get(c["document"])
            if before is None or c["version"] >= before["version"]:
                self.last[c["document"]] = c
        self.found = {d["document"]: d for d in self.of["document"]}
        self.view = {v["document"]: (v["routing"], v["digest"]) for v in self.of["view"]}
        self.places: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for p in self.of["place"]:
            self.places[p["document"]].append((p["routing"], p["digest"]))
        self.viewed = {c["document"] for c in self.commits if c["op"] == "refresh"} | self.view.keys()

    def there(self, document: str) -> bool:
        return bool(self.found.get(document, {}).get("there"))


def nothing_lost(h: History) -> Iterator[str]:
    status = {line["event"]: line["status"] for line in h.of["event"]}
    removed = {s["event"]: s["from"] for s in h.of["settle"] if s["to"] is None}
    for c in h.commits:
        end = status.get(c["event"]) or removed.get(c["event"], "done" if h.kafka else "missing")
        if end != "done" and not (end == "discarded" and c["event"] not in status):
            yield f"{c['event']} of {c['document']} ended {end}"
    if h.kafka:
        yield from (
            f"{c['document']} is missing" for c in h.last.values() if c["op"] == "upsert" and not h.there(c["document"])
        )


def nothing_made_up(h: History) -> Iterator[str]:
    known = {c["event"] for c in h.of["commit"]}
    yield from (f"event {event}" for event in h.seen_events - known)
    yield from (f"document {name}" for name, d in h.found.items() if d["there"] and name not in h.last)


def newest_is_there(h: History) -> Iterator[str]:
    for name, c in h.last.items():
        if c["op"] == "upsert" and name not in h.viewed:
            d = h.found.get(name, {})
            if not d.get("there") or (d["version"], d["digest"]) != (c["version"], c["digest"]):
                yield f"{name} is not {c['version']}"


def deleted_stays_deleted(h: History) -> Iterator[str]:
    yield from (f"{n} is back" for n, c in h.last.items() if c["op"] == "delete" and n not in h.viewed and h.there(n))
    finished = {s["event"]: s["at"] for s in h.of["settle"] if s["to"] == "done"}
    deletes: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for c in h.commits:
        if c["op"] == "delete" and c["event"] in finished:
            deletes[c["document"]].append((finished[c["event"]], c["version"]))
    stood: dict[str, int] = {}
    for read in h.of["read"]:
        for name in stood if read["last"] else read["versions"]:
            version = stood.get(name, 0)
            if version and any(at < read["still"] and of > version for at, of in deletes[name]):
                yield f"{name} stood at {version} after its delete"
        stood.update(read["versions"])


def versions_grow(h: History) -> Iterator[str]:
    highest: dict[tuple[Any, ...], int] = {}
    for read in h.of["read"]:
        for name, version in read["versions"].items():
            key = (read["life"], read["index"], name)
            if version and version < highest.get(key, 0):
                yield f"{name} fell to {version}"
            highest[key] = max(version, highest.get(key, 0))


def one_lease(h: History) -> Iterator[str]:
    yield from (c["event"] for c in h.of["claim"] if c["from"] != "pending" or c["token"] == c["token_before"])


def one_holder(h: History) -> Iterator[str]:
    holder = {c["token"]: c["by"] for c in h.of["claim"]}
    for s in h.of["settle"]:
        if s["from"] != "processing":
            continue
        if s["role"] == "reclaimer":
            if s["lease_left"] > 0:
                yield f"{s['event']} was taken {s['lease_left']} s early"
        elif s["by"] is None or holder.get(s["token"]) != s["by"]:
            yield f"{s['event']} was moved by {s['by']}"


def legal_steps(h: History) -> Iterator[str]:
    for s in h.steps:
        to = s["to"] if s["kind"] == "settle" else "processing"
        replay = (s["from"], to) == ("failed", "pending")
        if f" {s['from']}>{to}" not in ARROWS or (replay and (s["attempts"] or not s["replays"])):
            yield f"{s['event']} from {s['from']} to {to}"


def attempts_end(h: History) -> Iterator[str]:
    for s in h.steps:
        waits = s["kind"] == "settle" and s["to"] == "pending"
        if s["abandoned"] > MOST_ABANDONED - waits or (waits and s["attempts"] >= h.run["most_attempts"]):
            yield f"{s['event']}: {s['attempts']} attempts, abandoned {s['abandoned']} times"


def only_the_refusable_fail(h: History) -> Iterator[str]:
    for s in h.of["settle"]:
        refused = s["why"] == "non_retryable" and h.commit_of.get(s["event"], {}).get("refusable")
        if s["to"] == "failed" and s["why"] != "crash_suspect" and not refused:
            yield f"{s['event']} failed: {s['why']}"


def nothing_is_held(h: History) -> Iterator[str]:
    yield from (f"lease {line['token']}" for line in h.of["lease"])
    yield from (line["event"] for line in h.of["event"] if line["status"] == "processing")


def only_ours_is_written(h: History) -> Iterator[str]:
    """What the view keeps has drawn versions; a refresh, happened or not, has version 0."""
    versions: dict[str, set[int]] = defaultdict(set)
    for c in h.of["commit"]:
        versions[c["document"]].add(c["version"])
    for w in h.of["write"]:
        name, asks = w["document"], (w["op"], w["version"]) == ("delete", 0)
        if name not in h.view and not versions[name] & {0, w["version"]} and not (asks and versions[name]):
            yield f"{name} at {w['version']}"


def as_the_view_says(h: History) -> Iterator[str]:
    for name, (_, digest) in h.view.items():
        if {each for _, each in h.places.get(name, ())} != {digest}:
            yield f"{name} is not what the view says"
    yield from (f"{name} is back" for name in h.viewed - h.view.keys() if h.places.get(name))


def in_one_place(h: History) -> Iterator[str]:
    for name, places in h.places.items():
        right = h.view.get(name, ("", ""))[0]
        if (name in h.view or name not in h.viewed) and [routing for routing, _ in places] != [right]:
            yield f"{name} stands in {places}"


JUDGES = (
    *(nothing_lost, nothing_made_up, newest_is_there, deleted_stays_deleted, versions_grow, one_lease, one_holder),
    *(legal_steps, attempts_end, only_the_refusable_fail, nothing_is_held, only_ours_is_written, as_the_view_says),
    in_one_place,
)


def judge(lines: Iterable[Line]) -> dict[str, list[str]]:
    """The broken rules, each with what breaks it. Empty: all hold."""
    history = History(lines)
    return {rule: wrong for rule, check in zip(RULES, JUDGES, strict=True) if (wrong := list(check(history)))}


def told(broken: dict[str, list[str]]) -> str:
    return "\n".join(f"NOT {r}: {len(w)}, such as {w[0]}" for r, w in broken.items()) or "all rules hold"


def read(path: Path) -> Iterator[Line]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


if __name__ == "__main__":
    found = judge(read(Path(sys.argv[1])))
    print(told(found))
    sys.exit(1 if found else 0)
