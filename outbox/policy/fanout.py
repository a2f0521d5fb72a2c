"""What a fan-out is, how its ids become pages, and why one fails. Pure: asks no database, writes nothing."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from outbox.policy.document import precondition
from outbox.policy.event import Event
from outbox.policy.outcome import Failure
from outbox.policy.settle import Done, Released

PAGE: Final = 2_000  # refreshes written by one statement, which then holds their places for about 30 ms
# Open refreshes of all fan-outs, above which no page is written. Who edits one document waits behind so many at most:
# half a second at 10,000 events per second.
MOST_OPEN: Final = 4_000
FOUND_AT_ONCE: Final = 50_000  # ids that are read ahead, so that the query does not run once per page; 5 MB
KEY_BYTES: Final = 65_536
REST_SECONDS: Final = 0.1  # while enough refreshes are open; a worker needs it for half of them
EXPAND_SECONDS: Final = 2.0  # of one batch, whose other events wait for their settle meanwhile

PACED: Final = Released("fanout_paced", REST_SECONDS)
MERGED: Final = Done("superseded")  # another one of the same key goes on for it


class Fanout(NamedTuple):
    """A claimed fan-out, and the attachment whose query finds its documents. `number`: None where that is not there.
    `keys`: the values of the changed row that the query uses, as JSON text; None: there are none, or far too many.
    `table`: how SQL writes its name; None where it is gone. `cursor`: the last id that has its refresh."""

    event: Event
    number: int | None = None
    entity_type: str = ""
    named: str = ""
    table: str | None = None
    via: str | None = None
    path: Sequence[str] = ()
    keys: str | None = None
    cursor: str | None = None

    @property
    def alike(self) -> tuple[int, str]:
        """Those that are new and equal in this are one."""
        return self.number or 0, self.keys or ""

    def refusal(self) -> Failure | None:
        if self.number is None or self.via is None:
            return precondition("it names no attachment with a query: fan-outs are written by the triggers of attach")
        if self.keys is None:
            return precondition(f"it has no keys, or more than {KEY_BYTES} bytes of them")
        if self.table is None:
            return precondition(f"the table {self.named} is gone; discard it, and run `outbox verify`")
        return None


def by_attachment(fanouts: Iterable[Fanout]) -> list[list[Fanout]]:
    return [list(group) for _, group in groupby(sorted(fanouts, key=_place), key=lambda each: each.number)]


def by_key(fanouts: Iterable[Fanout]) -> list[list[Fanout]]:
    return [list(group) for _, group in groupby(sorted(fanouts, key=_place), key=lambda each: each.alike)]


def _place(fanout: Fanout) -> tuple[int, str, int]:
    return *fanout.alike, fanout.event.seq


def query_failed(fanout: Fanout, sqlstate: str | None, said: str) -> Failure:
    """The attached query did not run: the writer has committed, and only this fan-out fails."""
    remedy = {
        "42501": "grant the projector's role SELECT on what the query reads, then replay",
        "57014": "add an index that serves the query, then replay",
    }.get(sqlstate or "", "`outbox doctor` plans the query; attach the table with one that works, then replay")
    told = f"the query of --via of {fanout.named} failed: SQLSTATE {sqlstate or 'unknown'}, {said}: {remedy}"
    return precondition(told)
