"""What `outbox doctor` says about documents: the view, versions; and about attached tables."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from outbox.policy import coverage
from outbox.ports import Finding, Level

if TYPE_CHECKING:
    from outbox.store.attach.installed import AttachmentFacts
    from outbox.store.doctor import PostgresDoctor

VIEW_COLUMNS: Final = ("entity_type", "entity_id", "document")
MOST_NAMED: Final = 3

Row = Mapping[str, Any]


Versions = Callable[[str, Sequence[Row]], list[int | None]]  # (index, entities)
IndexOf = Callable[[str], str]


def view(store: PostgresDoctor, name: str) -> Iterator[Finding]:
    columns = store.view_columns()
    if not columns:
        if store.needs_the_view():
            remedy = 'Create it (README, "Plug in your own table"), or send payloads; then replay.'
            yield Finding("documents", Level.BAD, f"open events have no payload, and there is no view {name}", remedy)
        else:
            yield Finding("documents", Level.OK, f"no view {name}: every event must carry its payload")
        return
    if missing := [column for column in VIEW_COLUMNS if column not in columns]:
        remedy = f"It needs the columns {', '.join(VIEW_COLUMNS)}."
        yield Finding("documents", Level.BAD, f"{name} lacks {', '.join(missing)}", remedy)
        return
    read = store.coverage()
    if any(each.itself for each in read.read):
        remedy = "Make it an ordinary view, or a table that a job of yours fills, and attach that table."
        yield Finding("documents", Level.BAD, f"{name} is a materialised view: no change reaches it", remedy)
        return
    if (unsupported := store.unsupported_ids()) is not None:
        remedy = "Give it as text in the view (`id::text`), with an index on the same expression (docs/documents.md)."
        yield Finding("documents", Level.BAD, f"{name}.entity_id is {unsupported}, which cannot name documents", remedy)
        return
    yield from _readable(store, name)
    if "version" in columns:
        remedy = "Leave it out: each lookup draws its version, and what the view says of it is ignored."
        yield Finding("documents", Level.WARN, f"{name} has a column `version`", remedy)
    if read.unseen:
        names = ", ".join(each.shown for each in read.unseen[:MOST_NAMED])
        remedy = (
            "Read the tables behind it instead, or run `outbox repair` after each change, such as REFRESH MATERIALIZED "
            "VIEW; `outbox attach --ignore NAME --reason WHY` says that you do."
        )
        yield Finding("documents", Level.WARN, f"{name} reads {names}: no trigger sees its changes", remedy)
    else:
        yield Finding("documents", Level.OK, f"{name} is there, ids are {columns['entity_id']}")
    yield _lookup(store.lookup_scans(), name)


def _readable(store: PostgresDoctor, name: str) -> Iterator[Finding]:
    """Whoever asks may be the owner, whose own lookups prove nothing."""
    for role in store.view_unreadable():
        detail = f"a projector that logs in as {role} may not read {name}"
        yield Finding("readable", Level.WARN, detail, f"grant select on {name} to {role}")


def _lookup(scans: Sequence[Row], name: str) -> Finding:
    if not scans:
        return Finding("lookup", Level.OK, f"a lookup in {name} goes by indexes")
    tables = ", ".join(f"{scan['table']} (about {scan['rows']} rows)" for scan in scans[:MOST_NAMED])
    remedy = "Add an index on the id; do not cast it in the view: give `id` as `entity_id`, whatever its type."
    return Finding("lookup", Level.WARN, f"every lookup in {name} reads the whole of {tables}", remedy)


def covered(store: PostgresDoctor, name: str) -> Iterator[Finding]:
    """Every table and column that the view reads is attached, or somebody said why it need not be."""
    found = store.coverage()
    if forgotten := [each.shown for each in found.forgotten]:
        # Before the first type is declared no document can be stale: nothing was attached yet.
        level = Level.BAD if found.keeps_types else Level.WARN
        yield Finding("covered", level, coverage.told(name, forgotten), coverage.REMEDY)
    elif found.read:
        yield Finding("covered", Level.OK, f"every table and column that {name} reads is covered")
    for each in found.ignored:
        said = f"{each.shown}: {each.reason} ({each.ignored_by}, {each.ignored_at:%Y-%m-%d})"
        yield Finding("ignored", Level.OK, said)


def types(store: PostgresDoctor) -> Iterator[Finding]:
    """What keeps each entity type is declared; a change of it has to be carried through."""
    rows = store.declared()
    if moving := [row["entity_type"] for row in rows if row["moving"]]:
        told = ", ".join(moving[:MOST_NAMED])
        remedy = f"Run `outbox types set {moving[0]} view` again: it goes on where it stopped."
        yield Finding("types", Level.BAD, f"documents are not all brought over to the view: {told}", remedy)
        return
    by = {keeper: [row["entity_type"] for row in rows if row["kept_by"] == keeper] for keeper in ("view", "payload")}
    told = ", ".join(f"{len(names)} kept by {keeper}" for keeper, names in by.items() if names)
    yield Finding("types", Level.OK, f"entity types: {told or 'none declared yet'} (`outbox types`)")


def sequence_behind(store: PostgresDoctor) -> Iterator[Finding]:
    behind = store.sequence_behind()
    if behind is not None:
        last, given_out = behind
        remedy = "A running projector raises it within a minute; start one, or restart it, before producers go on."
        detail = f"the version sequence is at {last}, and rows have {given_out}: was it restored without its sequence?"
        yield Finding("sequence", Level.BAD, detail, remedy)


def version_raised(store: PostgresDoctor) -> Iterator[Finding]:
    row = store.version_raised()
    if row is None:
        yield Finding("sequence", Level.OK, "the version sequence was not moved (newest acts checked)")
        return
    told = f"moved from {row['was']} to {row['now']} at {row['at']:%Y-%m-%d %H:%M:%S%z}"
    remedy = (
        "Was it restored, or failed over to a replica that lagged? Then run `outbox refresh --all` once and "
        "`outbox verify`; see docs/runbooks/OutboxIndexAhead.md. If that is done, nothing is left to do."
    )
    yield Finding(
        "sequence", Level.WARN, f"an index was ahead of the database: the version sequence was {told}", remedy
    )


def equal_versions(store: PostgresDoctor) -> Iterator[Finding]:
    rows = store.equal_versions()
    if not rows:
        yield Finding("versions", Level.OK, "no two events of one entity share a version (newest ones checked)")
        return
    told = ", ".join(f"{row['entity_type']}:{row['entity_id']} at {row['event_version']}" for row in rows[:MOST_NAMED])
    remedy = "Give each change of an entity a higher version, or leave event_version to its default; never both."
    yield Finding("versions", Level.WARN, f"events of one entity share a version: {told}", remedy)


def versions_ahead(store: PostgresDoctor, versions: Versions, index_of: IndexOf) -> Iterator[Finding]:
    """Documents whose version no event knows: newer events of theirs would be taken for old ones."""
    rows = store.done_lately()
    by_target: dict[str, list[Row]] = {}
    for row in rows:
        by_target.setdefault(index_of(row["entity_type"]), []).append(row)
    ahead = [
        f"{row['entity_type']}:{row['entity_id']} at {version}"
        for target, entities in by_target.items()
        for row, version in zip(entities, versions(target, entities), strict=True)
        if version is not None and version > row["version"]
        if not store.version_known(row["entity_type"], row["entity_id"], version)
    ]
    if ahead:
        told = ", ".join(ahead[:MOST_NAMED])
        remedy = "Someone wrote by hand, or the database was restored: run `outbox repair` for these entities."
        yield Finding("ahead", Level.BAD, f"The index is ahead of every event of {told}", remedy)
    else:
        yield Finding("ahead", Level.OK, f"{len(rows)} entities done lately: none ahead of its events")


ATTACHED = "attached"


def attached(attachments: Sequence[AttachmentFacts]) -> Iterator[Finding]:
    for each in attachments:
        found = [*_broken(each), *_incomplete(each)]
        yield from found
        if not found:
            yield Finding(ATTACHED, Level.OK, _shown(each))


def _broken(each: AttachmentFacts) -> Iterator[Finding]:
    """Writes fail, or changes go missing."""
    there, how = each.there, each.there.attachment
    renew = f"Run `{there.command}`."
    if there.number is None and not how.older:
        detail = "its triggers are named as ours, and no attachment of ours explains them"
        remedy = "Run `outbox migrate`. If that names them too, drop them, and attach the table anew."
        yield Finding(ATTACHED, Level.BAD, f"{how.table}: {detail}", remedy)
        return
    if there.in_transaction:
        detail = "its --via query runs in the writer's transaction and misses what others are about to commit"
        yield _finding(each, Level.BAD, detail, f"Run `outbox migrate --finish`, or `{there.command}`.")
    if each.missing_columns:
        detail = f"the columns it was attached with are gone: {', '.join(each.missing_columns)}; writes to it fail"
        yield _finding(each, Level.BAD, detail, f"Run `outbox detach {how.table}`, and attach it by the new names.")
    if each.via_error:
        detail = f"its --via query does not plan any more ({each.via_error}); its fan-outs fail"
        yield _finding(each, Level.BAD, detail, f"Run `outbox detach {how.table}`, and attach it with a new query.")
    if there.missing_triggers:
        yield _finding(each, Level.BAD, f"it has no trigger for {', '.join(there.missing_triggers)}", renew)
    if disabled := [trigger.name for trigger in there.triggers if trigger.enabled in "DR"]:
        yield _finding(each, Level.BAD, f"disabled: {', '.join(disabled)}", renew)
    if there.needs_row_triggers and not how.per_row:
        detail = "statement triggers miss changes of a partitioned, inherited or subscribed table"
        yield _finding(each, Level.BAD, detail, renew)


def _incomplete(each: AttachmentFacts) -> Iterator[Finding]:
    there, how = each.there, each.there.attachment
    renew = f"Run `{there.command}`."
    if how.older:
        detail = "attached by release 0.1.0 with --payload: rows that triggers change again may be written as they were"
        remedy = f"Run `outbox detach {how.table}`; `{there.command} --document row` says what the view lacks."
        yield _finding(each, Level.WARN, detail, remedy)
    if there.elsewhere:
        detail = f"it still writes to {there.elsewhere}; other producers do not any more"
        yield _finding(each, Level.WARN, detail, renew)
    if any(trigger.enabled == "O" for trigger in there.triggers):
        detail = "its triggers are not ENABLE ALWAYS: they do not fire under session_replication_role = replica"
        yield _finding(each, Level.WARN, detail, renew)
    if any(part.oid == there.oid for part in each.open_partitions):
        yield _finding(each, Level.WARN, "TRUNCATE would leave documents behind, and is not refused", renew)
    yield from _partitions(each)
    if each.via_scans:
        detail = f"each change of it reads a large table as a whole: {each.via_scans}"
        yield _finding(each, Level.WARN, detail, "Add an index that serves the --via query.")
    if each.has_documents is False:
        detail = f"the view has no document of type {how.entity_type}"
        yield _finding(each, Level.WARN, detail, "Add the type to the view, or run `outbox detach` for it.")


def _partitions(each: AttachmentFacts) -> Iterator[Finding]:
    """That one comes or goes changes no row, so it writes no event."""
    there, kind = each.there, each.there.attachment.entity_type
    if new := [f"{part.schema}.{part.relation}" for part in each.open_partitions if part.oid != there.oid]:
        named = ", ".join(new[:MOST_NAMED])
        detail = f"partitions that came since it was attached: {named}. TRUNCATE is not refused there"
        backfill = shlex.join(["outbox", "backfill", "--type", kind])
        yield _finding(each, Level.WARN, detail, f"Run `{there.command}`, and if they came with rows `{backfill}`.")
    if each.partitions_gone:
        gone = "1 partition was" if each.partitions_gone == 1 else f"{each.partitions_gone} partitions were"
        detail = f"{gone} detached or dropped since it was attached: documents of its rows may be left"
        yield _finding(each, Level.WARN, detail, f"Run `outbox verify` and `outbox repair`, then `{there.command}`.")


def _finding(each: AttachmentFacts, level: Level, detail: str, remedy: str) -> Finding:
    return Finding(ATTACHED, level, f"{_shown(each)}: {detail}", remedy)


def _shown(each: AttachmentFacts) -> str:
    return f"{each.there.attachment.table} as {each.there.attachment.shown}"
