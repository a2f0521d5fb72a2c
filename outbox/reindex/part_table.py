"""Keeps the parts of a rebuild, a backfill or a comparison: who works on which, how far each is. Decides nothing."""

from collections.abc import Sequence
from typing import Any, Final

import orjson

from outbox.reindex.parts import PartsProgress, PlannedPart, RebuildPart, Work
from outbox.reindex.tables import LEASE
from outbox.store.pool import Database, TopicStore

MOST_TRIES: Final = 6  # without a page copied in between: as for an event that kills its workers
REPORTS_AT_ONCE: Final = 20


class PostgresParts(TopicStore, topic="rebuild_parts"):
    """The parts of one work, for whoever plans, does or follows them. `owner` names this process."""

    def __init__(self, database: Database, work: Work, *, owner: str) -> None:
        super().__init__(database)
        self._of = {"work": work.kind.value, "work_id": work.id}
        self._mine = {**self._of, "owner": owner, "lease": LEASE}

    # Planning

    def exist(self) -> bool:
        return bool(self._value("exist", **self._of))

    def plan(self, parts: Sequence[PlannedPart]) -> None:
        """Once: what is there already stays. What earlier works left is removed."""
        about = orjson.dumps([part._asdict() for part in parts]).decode()
        with self._database.transaction() as connection:
            connection.execute(self._sql["forget"], self._of)
            connection.execute(self._sql["plan"], {**self._of, "parts": about})

    def clear(self) -> None:
        self._do("clear")

    # Working

    def claim(self) -> RebuildPart | None:
        """A part that nobody works on. None: there is none."""
        row = self._row("claim", **self._mine, most_tries=MOST_TRIES)
        if row is None:
            return None
        place = row["place"]
        return RebuildPart(**{**row, "place": None if place is None else orjson.loads(place)})

    def renew(self) -> None:
        self._do("renew", **self._mine)

    def wrote_page(self, part: RebuildPart, cursor: str, written: int, newer: int, refused: int) -> bool:
        """False: the part is no longer ours."""
        counts = {"written": written, "newer": newer, "refused": refused}
        return self._do("wrote_page", **self._mine, **counts, id=part.id, cursor=cursor)

    def counts(self, part: RebuildPart, compared: int, drift: int) -> bool:
        """How far a comparison is: `drift` stands where a copy has what was refused."""
        return self._do("counts", **self._mine, id=part.id, written=compared - drift, newer=0, refused=drift)

    def finish(self, part: RebuildPart, report: Any = None) -> bool:
        told = None if report is None else orjson.dumps(report).decode()
        return self._do("finish", **self._mine, id=part.id, report=told)

    def let_go(self) -> None:
        """This process stops; anyone may go on."""
        self._do("free", owners=[self._mine["owner"]], clean=True)

    # Following

    def free(self, owners: Sequence[str]) -> None:
        """Of processes that are known to be dead."""
        if owners:
            self._do("free", owners=list(owners), clean=False)

    def try_again(self) -> None:
        self._do("try_again")

    def owners(self) -> Sequence[str]:
        return [row[0] for row in self._all("owners", **self._of)]

    def numbers(self) -> Sequence[int]:
        return [row[0] for row in self._all("numbers", **self._of)]

    def progress(self) -> PartsProgress:
        row = self._row("progress", **self._of, most_tries=MOST_TRIES)
        return PartsProgress() if row is None else PartsProgress(**row)

    def reports(self, read: Sequence[int]) -> Sequence[tuple[int, Any]]:
        """Of finished parts whose numbers are not among those that were read; some at a time."""
        rows = self._all("reports", **self._of, read=list(read), limit=REPORTS_AT_ONCE)
        return [(number, orjson.loads(report)) for number, report in rows]

    def _do(self, query: str, **named: Any) -> bool:
        return self._run(query, **{**self._of, **named}) > 0
