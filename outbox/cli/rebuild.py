"""The command `rebuild`: a new index from PostgreSQL under live writes. Parses, asks before the swap, prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from outbox import cli
from outbox.cli import Engine, Json, Master, Processes, Yes, flag
from outbox.cli.progress import ProgressMeter, meter
from outbox.errors import PartlyDone, UsageError

if TYPE_CHECKING:
    from outbox.policy.audit import Actor
    from outbox.policy.reindex import Rebuild
    from outbox.reindex.joining import Reindexing
    from outbox.reindex.rebuild import RebuildDesk

commands = typer.Typer()


@commands.command(rich_help_panel="Index")
def rebuild(
    mapping: Path | None = flag(
        None, "--mapping", "File with the new mappings (and settings); left out: the old ones.", "FILE"
    ),
    target: str | None = flag(None, "--target", "The alias; left out: ELASTIC_INDEX."),
    resume: bool = flag(False, "--resume", "Continue where it stopped, or begin again if it is broken."),
    swap: bool = flag(False, "--swap", "Let searches see the new index, when it is ready."),
    rollback: bool = flag(False, "--rollback", "After the swap: back to the old index."),
    finish: bool = flag(False, "--finish", "Remove the index that the alias does not use."),
    cancel: bool = flag(False, "--cancel", "Before the swap: remove the new index."),
    status: bool = flag(False, "--status", "Show the newest rebuild, and change nothing."),
    rate: float = flag(2000.0, "--rate", "Most documents per second; 0: no limit."),
    max_refused: int = flag(1000, "--max-refused", "Stop copying when the new mapping refused more than so many."),
    accept_drift: int = flag(0, "--accept-drift", "Be ready although so many documents differ.", "N"),
    accept_loss: int = flag(0, "--accept-loss", "Be ready although so many documents of the old index go.", "N"),
    parallel: Processes = None,
    engine: Engine = "local",
    master: Master = None,
    by: cli.ByShell = None,
    reason: cli.Why = "outbox rebuild",
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Build the index anew from PostgreSQL while it is written to, then swap the alias in one move.

    A new index NAME-vN is made; from then on workers write to both, and an event is done when both have it. Then all
    documents are copied, compared, and, after a question, the alias is swapped. The old index stays, and is written to,
    until --finish removes it or --rollback goes back. Killed anywhere, --resume continues; searches never notice.
    Nothing is swapped while the old index holds documents that the new one lacks and PostgreSQL cannot explain.

    Examples:
      outbox rebuild --mapping articles.json
      outbox rebuild --rate 0 --parallel 4
      outbox rebuild --resume --yes
      outbox rebuild --rollback --yes
    """
    chosen = {"resume": resume, "swap": swap, "rollback": rollback, "finish": finish, "cancel": cancel}
    wanted = [name for name, said in chosen.items() if said]
    if len(wanted) + status > 1 or (mapping is not None and (wanted or status)):
        raise UsageError("give one of --mapping, --resume, --swap, --rollback, --finish, --cancel, --status")
    with cli.open_reindexing(cli.settings()) as desk:
        if status:
            _print(desk.rebuild.newest(), json=json)
            return
        cli.spread_over(desk, parallel, engine, master)
        actor = cli.actor(by or cli.person())
        with _told(desk, rate, max_refused, accept_drift, accept_loss) as shown:
            acts = desk.rebuild
            held = acts.take() if wanted else acts.start(target or acts.targets[0], actor, reason, *_read(mapping))
            try:
                moved = _move(acts, held, wanted[0] if wanted else "resume", actor, reason, yes=yes, shown=shown)
            finally:
                acts.let_go(held)
        _print(moved, json=json)
        if moved.step in ("ready", "swapping") and not moved.is_over:
            raise PartlyDone("nothing was swapped: run `outbox rebuild --swap --yes`")


def _move(
    acts: RebuildDesk, held: Rebuild, wish: str, actor: Actor, reason: str, *, yes: bool, shown: ProgressMeter
) -> Rebuild:
    match wish:
        case "swap":
            question = f"Let searches on {held.target} see {held.new_index} in place of {held.old_index}?"
            cli.confirm(question, yes=yes)
            return acts.swap(held, actor, reason)
        case "rollback":
            refused = f" ({held.refused:,} writes were refused by one of the mappings)" if held.refused else ""
            cli.confirm(f"Let searches on {held.target} see {held.old_index} again?{refused}", yes=yes)
            return acts.rollback(held, actor, reason)
        case "finish":
            unused = held.new_index if held.status == "rolled_back" else held.old_index
            cli.confirm(f"Remove the index {unused} for good?", yes=yes)
            return acts.finish(held)
        case "cancel":
            cli.confirm(f"Give up the rebuild of {held.target} and remove {held.new_index}?", yes=yes)
            return acts.cancel(held)
        case _:
            ready = acts.carry_on(held)
            shown.close()
            return acts.swap(ready, actor, reason) if _is_to_be_swapped(ready, yes=yes) else ready


def _is_to_be_swapped(rebuild: Rebuild, *, yes: bool) -> bool:
    """Ready: asks on a terminal, does it with --yes, and elsewhere leaves it to a later `--swap`."""
    if rebuild.status != "running" or rebuild.step not in ("ready", "swapping"):
        return False
    question = f"{rebuild.new_index} is ready. Let searches on {rebuild.target} see it?"
    return yes or (cli.can_ask() and typer.confirm(question, err=True))


@contextmanager
def _told(
    desk: Reindexing, rate: float, max_refused: int, accept_drift: int, accept_loss: int
) -> Iterator[ProgressMeter]:
    from outbox.reindex.rebuild_steps import Choices  # noqa: PLC0415

    if min(rate, max_refused, accept_drift, accept_loss) < 0:
        raise UsageError("--rate, --max-refused, --accept-drift and --accept-loss must be 0 or more")
    steps = desk.rebuild.steps
    steps.choices = Choices(rate, max_refused, accept_drift, accept_loss)
    steps.say = steps.crew.say = cli.note
    with meter() as show:
        steps.on_progress = show
        yield show


def _read(file: Path | None) -> tuple[Mapping[str, Any] | None, Mapping[str, Any]]:
    """A file of mappings, or of mappings and settings as the API of Elasticsearch takes them."""
    found = cli.json_object(file, "--mapping")
    if found is None:
        return None, {}
    if not found.keys() & {"mappings", "settings"}:
        return found, {}
    if strange := found.keys() - {"mappings", "settings"}:
        raise UsageError(f"--mapping: beside mappings and settings there is {', '.join(sorted(strange))}")
    return found.get("mappings"), _flat(found.get("settings") or {})


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"index": {"analysis": ...}}` and `{"number_of_shards": 1}` as the flat names that the old index has."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        inner = f"{prefix}{name}"
        flat.update(_flat(value, f"{inner}.") if isinstance(value, dict) else {inner: value})
    if prefix:
        return flat
    return {name if name.startswith("index.") else f"index.{name}": value for name, value in flat.items()}


def _print(rebuild: Rebuild | None, *, json: bool) -> None:
    if rebuild is None:
        cli.answer(None, "There has never been a rebuild here.", json=json)
        return
    record = asdict(rebuild) | {"sentence": rebuild.sentence}
    shown = {name: value for name, value in record.items() if name not in ("sentence", "mapping", "options")}
    cli.answer(record, lambda: cli.tables(shown, f"{rebuild.sentence}."), json=json)
