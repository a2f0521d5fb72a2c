"""The commands `verify` and `repair`: compare, print what differs, ask, write events for it. The daemons send them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outbox import cli
from outbox.cli import Engine, Json, Master, Processes, Yes, flag, option
from outbox.cli.progress import meter
from outbox.errors import PartlyDone, UsageError

if TYPE_CHECKING:
    from outbox.reindex.comparison import Progress
    from outbox.reindex.repair import RepairPlan
    from outbox.reindex.verify import Verification

commands = typer.Typer()

Type = Annotated[str | None, option("--type --entity-type", "Only this entity type.", "TYPE")]
Target = Annotated[str | None, option("--target", "Only this target; left out: every target of the settings.")]
Rate = Annotated[float, option("--rate", "Most documents per second; 0: no limit.", "N")]
DRIFT_FOUND, INCONCLUSIVE = 1, 3


@commands.command(rich_help_panel="Index")
def verify(
    entity_type: Type = None,
    sample: int | None = flag(None, "--sample", "Compare a random sample of N.", "N"),
    target: Target = None,
    index: str | None = flag(None, "--index", "Compare with this index in place of the target.", "NAME"),
    rate: Rate = 2000.0,
    parallel: Processes = None,
    engine: Engine = "local",
    master: Master = None,
    json: Json = False,
) -> None:
    """Compare PostgreSQL with the index: missing, stale, orphaned and different documents. Changes nothing.

    The truth is the view of documents or, for entity types that it does not have, each entity's newest event (which
    needs `outbox migrate --by-entity`). What changes during the comparison is compared again. Numbers are compared by
    value: 1.10 and 1.1 are the same. The first hundred of each kind are shown.

    With OUTBOX_READ_DATABASE_URL a replica is read, and what differs is judged by the primary.

    Exit: 0 no drift, 1 drift, 3 no drift but something could not be judged.

    Examples:
      outbox verify
      outbox verify --type article --json | jq .first.missing
    """
    from outbox.reindex.verify import VerifyOptions  # noqa: PLC0415

    wish = VerifyOptions(entity_type, sample, rate, target, index, by=cli.person())
    with cli.open_reindexing(cli.settings()) as desk, meter() as show:
        cli.spread_over(desk, parallel, engine, master)
        found = desk.verify.run(wish, lambda p: show(p.phase, p.done, p.estimate, _remark(p)))
    cli.answer(found.as_json(), lambda: tell(found), json=json)
    leave_by(found)


def _remark(now: Progress) -> str:
    return ", ".join(part for part in (f"{now.drift:,} found", now.remark) if part)


def tell(found: Verification) -> None:
    record = found.as_json()
    cli.tables(record, record.pop("sentence"))


def leave_by(found: Verification) -> None:
    if found.report.drift:
        raise typer.Exit(DRIFT_FOUND)
    if not found.report.conclusive:
        raise typer.Exit(INCONCLUSIVE)


@commands.command(rich_help_panel="Index")
def repair(
    dry_run: bool = flag(False, "--dry-run", "Only show what would be written."),
    entity_type: Type = None,
    target: Target = None,
    limit: int = flag(10_000, "--limit", "Events at most.", "N"),
    rate: float = flag(500.0, "--rate", "Most events per second; 0: no limit.", "N"),
    compare_rate: float = flag(2000.0, "--compare-rate", "Most documents compared per second.", "N"),
    expect_deletes: int | None = flag(
        None, "--expect-deletes", "Needed when unusually many documents go: how many may.", "N"
    ),
    parallel: Processes = None,
    engine: Engine = "local",
    master: Master = None,
    by: cli.ByShell = None,
    reason: cli.Why = "outbox repair",
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Compare PostgreSQL with the index and write events for what differs, and for nothing else.

    Types that the view keeps get refreshes; for payloads versions are chosen so that a document edited or deleted by
    hand is really corrected. Documents that PostgreSQL does
    not know (unknown) are never deleted; those whose newest event failed are left to `outbox replay`. Audited.

    --parallel is for the comparison, as in `outbox verify`; events are written by one process, at --rate.

    Examples:
      outbox repair --dry-run
      outbox repair --yes && outbox wait --caught-up && outbox verify
      outbox repair --type article --limit 100 --by alice --reason "edited by hand" --yes
    """
    from outbox.reindex.verify import VerifyOptions  # noqa: PLC0415

    if not (dry_run or yes or cli.can_ask()):
        raise UsageError("give --dry-run to compare only or --yes to write: there is no terminal to ask on")
    person = by or cli.person()
    wish = VerifyOptions(entity_type, None, compare_rate, target, by=person)
    with cli.open_reindexing(cli.settings()) as desk, meter() as show:
        cli.spread_over(desk, parallel, engine, master)
        plan = desk.repair.plan(wish, limit, lambda p: show(p.phase, p.done, p.estimate, _remark(p)))
        show.close()
        if dry_run or not plan.findings:
            planned = {"dry_run": True, **_about(plan)}
            told = f"{len(plan.findings):,} events would be written"
            cli.answer(planned, lambda: cli.tables(planned, told), json=json)
            return
        if not yes:
            tell(plan.verification)
        cli.confirm(f"Write {len(plan.findings):,} events?", yes=yes)
        repaired = desk.repair.write(
            plan,
            cli.actor(person),
            reason,
            rate=rate,
            expect_deletes=expect_deletes,
            on_progress=lambda done, all_of_them: show("writing", done, all_of_them),
        )
    result = {"batch": repaired.batch, "written": repaired.written, "repaired": repaired.by_kind}
    record = {"dry_run": False, **_about(plan), **result, "right_by_now": repaired.right_by_now}
    cli.answer(record, lambda: cli.tables(record, f"{repaired.written:,} events written"), json=json)
    if plan.cut:
        raise PartlyDone(f"the limit of {limit:,} events was reached; there is more")


def _about(plan: RepairPlan) -> dict[str, object]:
    planned = {"planned": len(plan.findings), "by_kind": plan.by_kind, "failed_events": plan.failed, "cut": plan.cut}
    return {**planned, "verification": plan.verification.as_json()}
