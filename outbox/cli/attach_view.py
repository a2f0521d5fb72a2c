"""`outbox attach --from-view`: shows what the view of documents needs, asks, and installs it. It holds no SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outbox import cli

if TYPE_CHECKING:
    from outbox.ports import AttachResult, ViewPlan


SHOWN = ("table", "entity_type", "id_column", "via", "columns", "reason", "state")


def from_view(*, yes: bool, dry_run: bool, json: bool) -> None:
    with cli.open_desk(cli.settings()) as desk:
        plan = desk.view.plan()
        only_shown = dry_run or bool(plan.problems) or not plan.to_do
        if not json:
            _show(plan)
        elif only_shown:
            cli.as_json(_record(plan))
        _refuse(plan)
        if not plan.to_do:
            cli.note("everything that the view reads is attached")
        if only_shown:
            return
        cli.confirm(f"Install these {len(plan.to_do)}?", yes=yes)
        plan = desk.view.attach()
    cli.answer(_record(plan), lambda: cli.tables({"attached": len(plan.to_do), "next": plan.next}), json=json)


def script_of_view() -> str:
    with cli.open_desk(cli.settings()) as desk:
        plan = desk.view.plan()
    _refuse(plan)
    return plan.script


def _refuse(plan: ViewPlan) -> None:
    if plan.problems:
        from outbox.store.attach.from_view import CannotDerive  # noqa: PLC0415

        raise CannotDerive(list(plan.problems))


def _show(plan: ViewPlan) -> None:
    cli.tables([{name: row[name] for name in SHOWN} for row in _record(plan)["attachments"]])
    for each in plan.attachments:
        for note in each.result.notes if each.state != "there" else ():
            cli.note(f"note: {each.result.attachment.table}: {note}")


def record_of(done: AttachResult) -> dict[str, Any]:
    how = done.attachment
    return {"table": how.table, **how.how(), "rows": done.there, "notes": done.notes}


def _record(plan: ViewPlan) -> dict[str, Any]:
    attachments = [{**record_of(each.result), "reason": each.reason, "state": each.state} for each in plan.attachments]
    return {"attachments": attachments, "problems": plan.problems, "next": plan.next, "sql": plan.script}
