"""What `outbox doctor` says about attached tables: their triggers, columns and queries. It judges what was seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from outbox.ports import AttachmentFacts, Finding, Level

NAME = "attached"


class AttachmentExam(Protocol):
    def attachments(self) -> Sequence[AttachmentFacts]: ...


def attached(store: AttachmentExam) -> Iterator[Finding]:
    for each in store.attachments():
        found = [*_broken(each), *_incomplete(each)]
        yield from found
        if not found:
            yield Finding(NAME, Level.OK, f"{each.table} as {each.shown}")


def _broken(each: AttachmentFacts) -> Iterator[Finding]:
    """Writes fail, or changes go missing."""
    renew = f"Run `{each.command}`."
    if each.missing_columns:
        detail = f"the columns it was attached with are gone: {', '.join(each.missing_columns)}; writes to it fail"
        yield _finding(each, Level.BAD, detail, f"Run `outbox detach {each.table}`, and attach it by the new names.")
    if each.via_error:
        detail = f"its --via query does not plan any more ({each.via_error}); writes to it fail"
        yield _finding(each, Level.BAD, detail, f"Run `outbox detach {each.table}`, and attach it with a new query.")
    if each.missing_triggers:
        yield _finding(each, Level.BAD, f"it has no trigger for {', '.join(each.missing_triggers)}", renew)
    if each.disabled_triggers:
        yield _finding(each, Level.BAD, f"disabled: {', '.join(each.disabled_triggers)}", renew)
    if each.misses_rows:
        detail = "statement triggers miss changes of a partitioned, inherited or subscribed table"
        yield _finding(each, Level.BAD, detail, renew)
    if each.shared_id:
        detail = "its id is not unique by itself: a delete of one row deletes another's document"
        yield _finding(each, Level.BAD, detail, "Add a unique index on it alone, or attach it without --payload.")


def _incomplete(each: AttachmentFacts) -> Iterator[Finding]:
    renew = f"Run `{each.command}`."
    if each.older:
        detail = "attached in an older form (upsert and delete without a payload), which goes on working"
        yield _finding(each, Level.WARN, detail, f"To write refreshes instead, run `{each.command}`.")
    if each.replica_blind_triggers:
        detail = "its triggers are not ENABLE ALWAYS: they do not fire under session_replication_role = replica"
        yield _finding(each, Level.WARN, detail, renew)
    if each.truncatable:
        detail = f"TRUNCATE would leave documents behind, and is not refused on {', '.join(each.truncatable)}"
        yield _finding(each, Level.WARN, detail, renew)
    if each.via_scans:
        detail = f"each change of it reads a large table as a whole: {each.via_scans}"
        yield _finding(each, Level.WARN, detail, "Add an index that serves the --via query.")
    if each.has_documents is False:
        detail = f"it has rows, and the view has no document of type {each.entity_type}"
        yield _finding(each, Level.WARN, detail, "Add the type to the view, or run `outbox detach` for it.")


def _finding(each: AttachmentFacts, level: Level, detail: str, remedy: str) -> Finding:
    return Finding(NAME, level, f"{each.table} as {each.shown}: {detail}", remedy)
