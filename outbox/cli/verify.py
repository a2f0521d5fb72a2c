"""The command `verify`: is the index right? Prints what the comparison found and leaves by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outbox.cli import output, session
from outbox.cli.output import Json
from outbox.cli.progress import meter

if TYPE_CHECKING:
    from outbox.ops.reindex.verify import Verification
    from outbox.policy.drift import DriftFinding

commands = typer.Typer()

Type = Annotated[str | None, typer.Option("--type", "--entity-type", help="Only this entity type.", metavar="TYPE")]
Target = Annotated[
    str | None, typer.Option("--target", help="Only this target; left out: every target of the settings.")
]
Rate = Annotated[float, typer.Option("--rate", help="Documents a second at most; 0 = as fast as it goes.", metavar="N")]
DRIFT_FOUND, INCONCLUSIVE = 1, 3


@commands.command(rich_help_panel="Index")
def verify(
    entity_type: Type = None,
    sample: Annotated[
        int | None, typer.Option("--sample", help="Compare so many, drawn by lot, not all.", metavar="N")
    ] = None,
    target: Target = None,
    index: Annotated[
        str | None, typer.Option("--index", help="Compare with this index in place of the target.", metavar="NAME")
    ] = None,
    rate: Rate = 2000.0,
    json: Json = False,
) -> None:
    """Compare PostgreSQL with the index: missing, stale, orphaned and different documents. Changes nothing.

    The truth is the view of documents or, for entity types that it does not have, each entity's newest event (which
    needs `outbox migrate --by-entity`). What changes while it is looked at is looked at again. Numbers are compared by
    value: 1.10 and 1.1 are the same. The first hundred of each kind are shown.

    Exit: 0 no drift, 1 drift, 3 no drift but something could not be judged.

    Examples:
      outbox verify
      outbox verify --sample 1000
      outbox verify --type article --json | jq .first.missing
    """
    from outbox.ops.reindex.verify import VerifyOptions  # noqa: PLC0415

    wish = VerifyOptions(entity_type, sample, rate, target, index, by=session.person())
    with session.reindexing() as desk, meter() as show:
        found = desk.verify.run(wish, lambda p: show(p.phase, p.done, p.estimate, f"{p.drift:,} found"))
    if json:
        output.as_json(found.as_json())
    else:
        print_verification(found)
    leave_by(found)


def print_verification(found: Verification) -> None:
    rows = [_row(finding) for finding in found.report.shown()]
    if rows:
        output.table(("kind", "id", "PostgreSQL", "Elasticsearch", "remark"), rows)
        output.line()
    for entity in found.report.first_unreadable:
        output.line(f"unreadable {entity['entity_type']}:{entity['entity_id']}: {entity['why']}")
    output.line(found.sentence)


def _row(finding: DriftFinding) -> tuple[object, ...]:
    remark = finding.why or ", ".join(finding.fields)
    if finding.failed:
        remark = f"{remark} (its newest event failed)".strip()
    return finding.kind, finding.id, finding.version, finding.held, remark


def leave_by(found: Verification) -> None:
    if found.report.drift:
        raise typer.Exit(DRIFT_FOUND)
    if not found.report.conclusive:
        raise typer.Exit(INCONCLUSIVE)
