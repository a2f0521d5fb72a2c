"""Breaks a copy of the daemon in five ways and shows which lab finds it: `python -m labs.mutations [NAME ...]`.

The checkout itself is not changed: the daemons run from the copy (`--code`).
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labs.experiment import find
from labs.session import RunOptions, Session, say
from labs.verdict import FAIL
from labs.worker import ROOT
from outbox.embedded import EmbeddedStack
from outbox.errors import OutboxError

RUNS = Path("build/labs/mutations")
SIGNALLED = 128


@dataclass(frozen=True, slots=True)
class Change:
    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutation:
    """What is broken, and the lab that must fail then."""

    name: str
    what: str
    lab: str
    changes: Sequence[Change]


MUTATIONS = (
    Mutation(
        "no_heartbeat",
        "leases are never renewed",
        "es_slow",
        [Change("outbox/daemon/lease.py", "if holding.wants_renewal():", "if False:")],
    ),
    Mutation(
        "no_token_check",
        "a settle changes its rows even if another worker holds them now",
        "two_workers_one_paused",
        [
            Change(
                "outbox/store/queries/events.sql",
                "unnest(coalesce(%(only)s::uuid[], ids)) from held))\n       and lease_token = %(token)s and status",
                "unnest(ids) from held) || %(only)s::uuid[])\n       and status",
            ),
            Change(
                "outbox/store/events.py",
                "self._settle(token, settlements, drawn, only)",
                "self._settle(token, settlements, drawn, [id for id, _ in settlements])",
            ),
        ],
    ),
    Mutation(
        "no_version",
        "documents are written without their version",
        "out_of_order_versions",
        [
            Change(
                "outbox/sink/bulk.py",
                """b'{"%b":{"_id":%b,"version":%d,"version_type":"external_gte"}}' % (word, _text(name), version)""",
                """b'{"%b":{"_id":%b}}' % (word, _text(name))""",
            )
        ],
    ),
    Mutation(
        "insert_version",
        "a refresh is written under the version of its insert, not under a new one",
        "joined_documents",
        [
            Change(
                "outbox/daemon/projector.py",
                "        parts = fast_path.from_view(sendable, found, bodies.drawn, self.portion_bytes)",
                "        parts = None",
            ),
            Change(
                "outbox/daemon/batch.py",
                "            stack,\n            self.drawn,\n",
                "            stack,\n            event.event_version,\n",
            ),
        ],
    ),
    Mutation(
        "no_raise",
        "the sequence is not raised when the index is ahead of it",
        "database_restored",
        [Change("outbox/daemon/higher_version.py", "        self._move_on(delivery, current, batch)\n", "")],
    ),
)


def mutate(source: Path, place: Path, mutation: Mutation) -> Path:
    """A copy of the package with the mutation. Raises if the code no longer matches the mutation."""
    for part in ("outbox", "sql"):
        shutil.copytree(source / part, place / part, ignore=shutil.ignore_patterns("__pycache__"))
    for change in mutation.changes:
        path = place / change.file
        text = path.read_text(encoding="utf-8")
        if text.count(change.old) != 1:
            raise ValueError(f"{mutation.name}: {change.file} has {text.count(change.old)} times: {change.old}")
        path.write_text(text.replace(change.old, change.new), encoding="utf-8")
    return place


def try_one(mutation: Mutation, database_url: str, elastic_url: str) -> str:
    """The line of the table: what was broken, the lab and its result."""
    say(f"{mutation.name}: {mutation.what}")
    with tempfile.TemporaryDirectory(prefix="outbox-mutation-") as folder:
        code = mutate(ROOT, Path(folder), mutation)
        session = Session(RunOptions(RUNS, database_url=database_url, elastic_url=elastic_url, code=code))
        exit_code = session.run([find(mutation.lab)])
    if exit_code > SIGNALLED:
        sys.exit(exit_code)
    _, verdict = session.outcomes[-1]
    violated = "; ".join(f"{finding.name}: {finding.observed}" for finding in verdict.violated)
    reason = violated or verdict.sentence
    return f"| `{mutation.name}` | {mutation.what} | `{mutation.lab}` | {verdict.result} | {reason} |"


def main(names: list[str]) -> int:
    known = {mutation.name: mutation for mutation in MUTATIONS}
    if strange := [name for name in names if name not in known]:
        say(f"there is no mutation {strange[0]!r}; there are {', '.join(known)}")
        return 2
    try:
        with EmbeddedStack(temporary=True, report=say) as stack:
            lines = [try_one(known[name], stack.database_url, stack.elastic_url) for name in names or known]
    except OutboxError as error:
        say(f"labs: {error.message}")
        return error.exit_code
    except KeyboardInterrupt:
        say("labs: ended by SIGINT; the servers are stopped")
        return SIGNALLED + signal.SIGINT
    print("| mutation | what is broken | lab | verdict | finding |\n|---|---|---|---|---|")
    print("\n".join(lines))
    return 0 if all(f"| {FAIL} |" in line for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
