"""The commands `attach` and `detach`: a table's changes become events. They hold no SQL."""

from __future__ import annotations

import re
import sys
from enum import Enum
from typing import Annotated

import typer

from outbox import cli
from outbox.cli import Json, Yes, flag
from outbox.cli.attach_view import from_view as derive
from outbox.cli.attach_view import record_of, script_of_view
from outbox.errors import UsageError
from outbox.ports import Attachment, AttachResult

commands = typer.Typer()
_COLUMN = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^",\s](?:[^",]*[^",\s])?))\s*(?:,|\Z)')
_COLUMN_LIST = re.compile(rf"(?:{_COLUMN.pattern})+(?<!,)")
TABLE = typer.Argument(help="The table, as in SQL; with its schema if needed.", metavar="TABLE")
Table = Annotated[str, TABLE]

Sql = Annotated[bool, typer.Option("--sql", help="Change nothing: print the SQL, for a migration tool.")]


class DocumentOrigin(Enum):
    ROW = "row"


@commands.command(rich_help_panel="Install")
def attach(
    table: Annotated[str | None, TABLE] = None,
    from_view: bool = flag(False, "--from-view", "Derive all attachments from the view of documents."),
    entity_type: str | None = flag(None, "--type", "Entity type whose documents change, such as article.", "TYPE"),
    id_column: str | None = flag(None, "--id", "Column with the id of the entity: its own id, or a child's.", "COLUMN"),
    via: str | None = flag(None, "--via", "Instead of --id: a query over the row `changed` that gives ids.", "QUERY"),
    columns: str | None = flag(None, "--columns", "Of updates, only those that change one of these.", "COLUMN,..."),
    document: DocumentOrigin | None = flag(None, "--document", "The row itself is the document; see above."),
    per_row: bool = flag(False, "--per-row", "Fire for each row: for tables that logical replication fills."),
    ignore: list[str] | None = flag(None, "--ignore", "Instead: say that this table needs none. Repeatable.", "TABLE"),
    reason: str | None = flag(None, "--reason", "With --ignore: why, for the audit log.", "TEXT"),
    by: cli.ByShell = None,
    dry_run: bool = flag(False, "--dry-run", "With --from-view: change nothing, show the plan."),
    yes: Yes = False,
    sql: Sql = False,
    json: Json = False,
) -> None:
    """Install triggers that write events for every change of a table, in the same transaction; deletes included.

    Each event is a refresh: the document becomes what the view OUTBOX_DOCUMENTS (search_documents) says of the entity
    then, or goes when the view has it no more. One table can be attached in several ways; the same way again renews
    it. TRUNCATE is refused while the table is attached.

    With --from-view, every table that the view reads is attached by what the view says: the plan is shown with a
    reason for each, and installed in one transaction after a question. What cannot be derived is named with the
    command to give by hand, and then nothing is attached. Run it again after the view was replaced.

    A --via query runs in a projector, after the change is committed and with the projector's rights: the writer writes
    one event and does not wait. Let an index serve the query.

    With --document row, the row is the document. It attaches only where the view has such documents; otherwise it
    changes nothing and prints the SQL of the view, or of what to add to it.

    With --sql nothing is changed either: it makes the same checks and prints what it would run, for a migration.

    Every table and column that the view reads must be attached, or documents go stale: `outbox doctor` is BAD and
    `outbox run` warns. --ignore says that a table, or with --columns some of its columns, never change, or that your
    own code writes the refreshes. Only the owner of the outbox's tables may say so; it is audited, and `outbox detach
    --ignored` takes it back.

    Examples:
      outbox attach --from-view
      outbox attach comments --type article --id article_id
      outbox attach authors --type article --via "select id from articles where author_id = changed.id"
      outbox attach orders --type order --id number --document row
      outbox attach articles --type article --id id --sql > migrations/V7__search.sql
      outbox attach --ignore countries --ignore currencies --reason "they never change"
    """
    one_table = [table, entity_type, id_column, via, document, per_row or None]
    if ignore:
        if any(each is not None for each in one_table) or from_view or dry_run or sql:
            raise UsageError("--ignore takes only --columns, --reason, --by and --json beside it")
        return _ignore(ignore, _names(columns), reason, by, json=json)
    if from_view:
        if any(each is not None for each in (*one_table, columns)):
            raise UsageError("--from-view says how tables are attached: give no TABLE and no option of one.")
        if not sql or json:
            return derive(yes=yes, dry_run=dry_run or sql, json=json)
        return _print_script(script_of_view())
    if table is None or entity_type is None or dry_run or yes:
        raise UsageError(
            "Give TABLE and --type, or --from-view, or --ignore TABLE with --reason; --dry-run and --yes belong to "
            "--from-view."
        )
    wanted = Attachment(table, entity_type, id_column, via, _names(columns), per_row)
    with cli.open_desk(cli.settings()) as desk:
        done = desk.producers.attach(wanted, rows=document is not None, run=not sql)
    return _answer(done, sql=sql, json=json)


def _answer(done: AttachResult, *, sql: bool, json: bool) -> None:
    record = {**record_of(done), "next": done.next}
    if sql and not json:
        _print_script(done.sql)
    else:
        cli.answer({**record, "sql": done.sql} if json else record, json=json)
    for note in done.notes:
        cli.note(f"note: {note}")


def _ignore(names: list[str], columns: tuple[str, ...], reason: str | None, by: str | None, *, json: bool) -> None:
    if reason is None:
        raise UsageError("--ignore needs --reason, for the audit log")
    if columns and len(names) > 1:
        raise UsageError("--columns are those of one table: give one --ignore")
    with cli.open_desk(cli.settings()) as desk:
        found = desk.ignored.ignore(names, columns, cli.actor(by or cli.person()), reason)
    what = f"{', '.join(columns)} of {found[0]}" if columns else ", ".join(found)
    cli.answer({"ignored": found, "columns": columns, "reason": reason}, f"ignored {what}: {reason}", json=json)


def _print_script(script: str) -> None:
    """Unchanged into a file. On a terminal control characters, which names may have, are shown."""
    text = f"-- Run this in one transaction, as the table's owner, where `outbox migrate` has run.\n\n{script}"
    sys.stdout.write(cli.visible(text, keep="\n\t") if sys.stdout.isatty() else text)


def _names(columns: str | None) -> tuple[str, ...]:
    """Separated by commas; a name that has a comma, a quote or outer blanks itself stands in double quotes."""
    if columns is None:
        return ()
    if not _COLUMN_LIST.fullmatch(columns):
        raise UsageError(f"--columns {columns!r} is no list of names. Separate them by commas, such as title,price.")
    return tuple(quoted.replace('""', '"') or plain.strip() for quoted, plain in _COLUMN.findall(columns))


@commands.command(rich_help_panel="Install")
def detach(
    table: Table,
    entity_type: str | None = flag(None, "--type", "Only what is attached as this type.", "TYPE"),
    ignored: bool = flag(
        False, "--ignored", "Instead: take back that it needs no attachment (`outbox attach --ignore`)."
    ),
    by: cli.ByShell = None,
    yes: Yes = False,
    sql: Sql = False,
    json: Json = False,
) -> None:
    """Remove the triggers; changes of the table are no longer projected. Events that were written stay.

    Examples:
      outbox detach shop.articles --yes
      outbox detach countries --ignored
    """
    if ignored:
        if entity_type is not None or sql:
            raise UsageError("--ignored takes only --by and --json beside it")
        with cli.open_desk(cli.settings()) as desk:
            said = desk.ignored.watch_again(table, cli.actor(by or cli.person()))
        cli.answer({"table": table, "reason": said}, f"{table} is no longer ignored (it was: {said})", json=json)
        return
    if sql:
        with cli.open_desk(cli.settings()) as desk:
            _print_script(desk.producers.detach_sql(table, entity_type=entity_type))
        return
    what = f"{table} as {entity_type}" if entity_type is not None else table
    cli.confirm(f"Stop projecting the changes of {what}?", yes=yes)
    with cli.open_desk(cli.settings()) as desk:
        gone = desk.producers.detach(table, entity_type=entity_type)
    cli.answer({"detached": table, "attachments": gone}, f"detached {what}", json=json)
