"""The command `rebuild`: a new index from PostgreSQL under live writes. Parses, asks before the swap, prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outbox import cli
from outbox.cli import Engine, Json, Master, Processes, Yes, option
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
    mapping: Annotated[
        Path | None, option("--mapping", "File with the new mappings (and settings); left out: the old ones.", "FILE")
    ] = None,
    target: Annotated[str | None, option("--target", "The alias; left out: ELASTIC_INDEX.")] = None,
    resume: Annotated[bool, option("--resume", "Continue where it stopped, or begin again if it is broken.")] = False,
    swap: Annotated[bool, option("--swap", "Let searches see the new index, when it is ready.")] = False,
    rollback: Annotated[bool, option("--rollback", "After the swap: back to the old index.")] = False,
    finish: Annotated[bool, option("--finish", "Remove the index that the alias does not use.")] = False,
    cancel: Annotated[bool, option("--cancel", "Before the swap: remove the new index.")] = False,
    status: Annotated[bool, option("--status", "Show the newest rebuild, and change nothing.")] = False,
    rate: Annotated[float, option("--rate", "Most documents per second; 0: no limit.")] = 2000.0,
    max_refused: Annotated[
        int, option("--max-refused", "Stop copying when the new mapping refused more than so many.")
    ] = 1000,
    accept_drift: Annotated[int, option("--accept-drift", "Be ready although so many documents differ.", "N")] = 0,
    accept_loss: Annotated[
        int, option("--accept-loss", "Be ready although so many documents of the old index go.", "N")
    ] = 0,
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

    Many documents are cut by key into parts, which --parallel processes copy at the same time (as many as there are
    cores, where it is worth it). --rate is that of all together: at the default one process keeps up.

    Examples:
      outbox rebuild --mapping articles.json
      outbox rebuild --rate 0 --parallel 4
      outbox rebuild --status
      outbox rebuild --resume --yes
      outbox rebuild --rollback --yes
      outbox rebuild --finish --yes
    """
    chosen = {"resume": resume, "swap": swap, "rollback": rollback, "finish": finish, "cancel": cancel}
    wanted = [name for name, said in chosen.items() if said]
    if len(wanted) + status > 1 or (mapping is not None and (wanted or status)):
        raise UsageError("give one of --mapping, --resume, --swap, --rollback, --finish, --cancel, --status")
    with cli.open_reindex() as desk:
        if status:
            _print(desk.rebuild.newest(), json=json)
            return
        cli.spread_over(desk, parallel, engine, master)
        actor = cli.actor(by or cli.person())
        with _told(desk, rate, max_refused, accept_drift, accept_loss) as shown:
            act = _Acting(desk, actor, reason, yes, shown)
            moved = act.start(target, mapping) if not wanted else getattr(act, wanted[0])()
        _print(moved, json=json)
        if moved.step in ("ready", "swapping") and not moved.is_over:
            raise PartlyDone("nothing was swapped: run `outbox rebuild --swap --yes`")


class _Acting:
    """One wish of a person, the lease given back whatever happens."""

    def __init__(self, desk: Reindexing, actor: Actor, reason: str, yes: bool, shown: ProgressMeter) -> None:
        self._shown = shown
        self._desk: RebuildDesk = desk.rebuild
        self._actor = actor
        self._reason = reason
        self._yes = yes

    def start(self, target: str | None, mapping: Path | None) -> Rebuild:
        mappings, settings = _read(mapping)
        name = target or self._desk.targets[0]
        begun = self._desk.start(name, self._actor, self._reason, mappings, settings)
        with self._holding(begun):
            return self._swap_if_wanted(self._desk.carry_on(begun))

    def resume(self) -> Rebuild:
        taken = self._desk.take()
        with self._holding(taken):
            return self._swap_if_wanted(self._desk.carry_on(taken))

    def swap(self) -> Rebuild:
        taken = self._desk.take()
        with self._holding(taken):
            self._ask(f"Let searches on {taken.target} see {taken.new_index} in place of {taken.old_index}?")
            return self._desk.swap(taken, self._actor, self._reason)

    def rollback(self) -> Rebuild:
        taken = self._desk.take()
        with self._holding(taken):
            refused = f" ({taken.refused:,} writes were refused by one of the mappings)" if taken.refused else ""
            self._ask(f"Let searches on {taken.target} see {taken.old_index} again?{refused}")
            return self._desk.rollback(taken, self._actor, self._reason)

    def finish(self) -> Rebuild:
        taken = self._desk.take()
        with self._holding(taken):
            unused = taken.new_index if taken.status == "rolled_back" else taken.old_index
            self._ask(f"Remove the index {unused} for good?")
            return self._desk.finish(taken)

    def cancel(self) -> Rebuild:
        taken = self._desk.take()
        with self._holding(taken):
            self._ask(f"Give up the rebuild of {taken.target} and remove {taken.new_index}?")
            return self._desk.cancel(taken)

    def _swap_if_wanted(self, rebuild: Rebuild) -> Rebuild:
        """Ready: asks on a terminal, does it with --yes, and elsewhere leaves it to a later `--swap`."""
        if rebuild.status != "running" or rebuild.step not in ("ready", "swapping"):
            return rebuild
        self._shown.close()
        question = f"{rebuild.new_index} is ready. Let searches on {rebuild.target} see it?"
        if not self._yes and not (cli.can_ask() and typer.confirm(question, err=True)):
            return rebuild
        return self._desk.swap(rebuild, self._actor, self._reason)

    def _ask(self, question: str) -> None:
        cli.confirm(question, yes=self._yes)

    @contextmanager
    def _holding(self, rebuild: Rebuild) -> Iterator[None]:
        try:
            yield
        finally:
            self._desk.let_go(rebuild)


@contextmanager
def _told(
    desk: Reindexing, rate: float, max_refused: int, accept_drift: int, accept_loss: int
) -> Iterator[ProgressMeter]:
    """Progress on stderr while it works."""
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
    if json:
        cli.as_json(None if rebuild is None else asdict(rebuild) | {"sentence": rebuild.sentence})
        return
    if rebuild is None:
        cli.line("There has never been a rebuild here.")
        return
    cli.line(f"{rebuild.sentence}.")
    rows = (
        ("status", f"{rebuild.status}, step {rebuild.step}"),
        ("started", f"{cli.shown(rebuild.started_at)} by {rebuild.started_by} ({rebuild.reason})"),
        ("copied", f"{rebuild.written:,} of about {max(rebuild.total or 0, rebuild.written):,}"),
        ("mirrors", ", ".join(rebuild.mirrors)),
        ("refused", f"{rebuild.refused:,}"),
        ("at work", rebuild.owner if rebuild.held else "nobody"),
        ("error", rebuild.error or rebuild.broken),
    )
    cli.table(("", ""), [row for row in rows if row[1]])
    for refusal in rebuild.refusals or ():
        cli.line(f"refused {cli.visible(refusal['id'])}: {cli.visible(refusal['error'])}")
