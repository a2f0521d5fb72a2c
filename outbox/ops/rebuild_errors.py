"""Owns what can stand in the way of a rebuild, each with what to do next. Raises nothing by itself."""

from outbox.errors import Conflict, OutboxError


class NotNow(Conflict):
    """The rebuild is not at a step that allows this. See `outbox rebuild --status`; nothing was changed."""


class InTheWay(Conflict):
    """A rebuild is not over yet, and there is only one at a time. See `outbox rebuild --status`; go on with `--resume`,
    give it up with `--cancel` or, when it is swapped, end it with `--finish` or `--rollback`."""


class HeldByAnother(Conflict):
    """Another process works on this rebuild. Stop it there first; a killed one lets go after fifteen seconds."""


class Broken(Conflict):
    """A worker found that the other index could not be written to, and went on without it. Mend the cause, then begin
    again with `outbox rebuild --resume` (the new index is emptied), or give it up with `--cancel`."""


class NoWayBack(Conflict):
    """The old index has missed writes since the swap, so that going back would lose them. Mend the new index, or
    rebuild again; `--finish` removes the old one."""


class TooManyRefused(OutboxError):
    """The new mapping refuses too many documents, and the copying has stopped. See `outbox rebuild --status` for the
    first hundred; give it up with `--cancel`, or go on with `--resume --max-refused N`."""


class NotAlike(OutboxError):
    """The new index is not what PostgreSQL says, and nothing was swapped. See `outbox rebuild --status`; compare again
    with `--resume`, accept it with `--resume --accept-drift N`, or give it up with `--cancel`."""


class OutOfSight(OutboxError):
    """Not everything that the old index holds could be copied from PostgreSQL. Run `outbox migrate --by-entity` first,
    so that each entity's newest event can be found; nothing was started."""

    exit_code = 78
