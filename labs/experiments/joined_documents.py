"""Two overlapping transactions each add a comment to one article and commit in reverse order: none is lost."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack

import psycopg

from labs.checks import at_least, noted
from labs.experiment import Experiment
from labs.experiments._joined import TABLES, as_postgres_says, comment, note_truth, stale, write_articles
from labs.invariants import EVERYWHERE, counters_are_true, nothing_failed, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

WAVES, PAIRS = 12, 20  # the pairs of a wave are open at the same time: that many connections
MOST_SECONDS_APART = 0.06


def prepare(stage: Stage) -> None:
    stage.table.rows(TABLES)
    write_articles(stage, range(WAVES * PAIRS))


def fault(stage: Stage) -> None:
    """In each pair the first writes its comment and its refresh, then the second does, and the second commits first. In
    every other wave the second is projected before the first commits; in the others that is random."""
    dice = random.Random(stage.seed)
    for wave in range(WAVES):
        _wave(stage, range(wave * PAIRS, (wave + 1) * PAIRS), dice, projected_between=wave % 2 == 0)
    stage.note("pairs", WAVES * PAIRS)
    stage.note("overtaken", (WAVES + 1) // 2 * PAIRS)


def _wave(stage: Stage, articles: Sequence[int], dice: random.Random, *, projected_between: bool) -> None:
    with ExitStack() as closing, stage.table.connect() as second:
        first = [closing.enter_context(psycopg.connect(stage.table.database_url)) for _ in articles]
        early = [comment(one, n, f"first of {n}") for one, n in zip(first, articles, strict=True)]
        late: list[str] = []
        for article in articles:
            with second.transaction():
                entry = comment(second, article, f"second of {article}")
            stage.ledger.add(entry)
            late.append(entry.id)
        if projected_between:
            stage.wait_until(lambda: _done(stage, late), "the second comments are projected")
        for connection, entry in zip(first, early, strict=True):
            if not projected_between:
                time.sleep(dice.uniform(0, MOST_SECONDS_APART))
            connection.commit()
            stage.ledger.add(entry)
        stage.mark(f"{len(articles)} pairs, the first one's commit after the second's", "fault")


def _done(stage: Stage, events: list[str]) -> bool:
    return stage.table.count("id = any (%(ids)s::uuid[]) and status = 'done'", ids=events) == len(events)


def after(stage: Stage) -> None:
    note_truth(stage)


def summary(record: Record) -> str:
    return (
        f"{record.notes['pairs']} pairs of comments committed in reverse order, {len(stale(record))} documents stale;"
    )


EXPERIMENT = Experiment(
    name="joined_documents",
    title="Two comments on one article, committed in reverse order",
    story=(
        "Two requests each add a comment to the same article at the same time, and each writes a refresh of it. The one"
        " that wrote first commits last. Versions that are drawn when events are written say nothing about what the"
        " view showed when it was read."
    ),
    hypothesis=(
        "Each refresh draws its version after its claim and before it reads the view, so the highest version has"
        " every comment that was committed before. No document lacks one, whatever the order of commits."
    ),
    load=Load("mixed", rate=20),
    workers=("w1", "w2"),
    prepare=prepare,
    fault=fault,
    after=after,
    bit=at_least("pairs whose second was projected before the first committed", noted("overtaken"), PAIRS, "notes"),
    invariants=(*EVERYWHERE, as_postgres_says, nothing_failed, counters_are_true, recovered_within(20)),
    finding=summary,
    runbook="docs/runbooks/OutboxOldestAge.md",
    seconds=30,
)
