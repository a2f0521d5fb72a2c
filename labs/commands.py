"""The command line of the labs: list, show, run, verify, export, index, clean. It only parses and prints."""

from __future__ import annotations

import json as jsonlib
import sys
import tarfile
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from labs import cleaning, report
from labs.client import PRODUCTS, release
from labs.errors import LabError, UnknownLab
from labs.experiment import Experiment, all_experiments, find
from labs.record import Record
from labs.report import gallery, manifest
from labs.session import RunOptions, Session, say
from labs.verdict import judge
from outbox.embedded.products import OPENSEARCH, release_of
from outbox.errors import OutboxError

QUICKEST = ("bad_op", "out_of_order_versions", "es_reply_lost")
RUNS = Path("build/labs")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="""Chaos experiments with a real PostgreSQL, a real Elasticsearch or OpenSearch and real daemons.

    Each run leaves a folder with report.html, report.md, report.json and its raw data.
    Exit codes: 0 passed, 1 failed, 2 usage, 3 inconclusive, 75 no servers, 130/143 ended by a signal.
    """,
)
Runs = Annotated[Path, typer.Option("--runs", help="Folder of the runs.", envvar="LABS_RUNS")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DatabaseUrl = Annotated[
    str | None, typer.Option("--database-url", help="Use this PostgreSQL instead of an embedded one.")
]
ElasticUrl = Annotated[
    str | None, typer.Option("--elastic-url", help="Use this Elasticsearch instead of an embedded one.")
]


@app.command("list")
def list_(json: Json = False) -> None:
    """List all experiments, those of the guide first."""
    known = all_experiments().values()
    if json:
        print(jsonlib.dumps([_described(one) for one in known], indent=1))
        return
    for one in known:
        number = f"lab {one.guide.number}" if one.guide else ""
        print(f"{one.name:<26} {number:<6} {one.seconds:>3} s  {one.title}")


@app.command()
def show(name: str) -> None:
    """Show story, hypothesis, load, fault, checks and requirements of an experiment. Runs nothing."""
    for key, value in _described(find(name)).items():
        if value not in (None, "", []):
            print(_paragraph(key.replace("_", " "), "; ".join(value) if isinstance(value, list) else str(value)))


def _paragraph(name: str, text: str) -> str:
    """A name and its wrapped text: stories are long, and terminals would break words."""
    return textwrap.fill(text, 100, initial_indent=f"{name:<16} ", subsequent_indent=" " * 17, break_long_words=False)


def _described(one: Experiment) -> dict[str, object]:
    return {
        "name": one.name,
        "title": one.title,
        "guide": one.guide.number if one.guide else None,
        "story": one.story,
        "hypothesis": one.hypothesis,
        "steady_state": one.steady_state,
        "load": f"{one.load.scenario}, {one.load.rate:g} events per second",
        "daemons": list(one.workers),
        "fault": (one.fault.__doc__ or "").strip() or (sys.modules[one.fault.__module__].__doc__ or "").strip(),
        "must_hold": [check.__name__.replace("_", " ") for check in one.invariants],
        "expected_alerts": list(one.expected_alerts),
        "settings": [f"{name}={value}" for name, value in one.settings.items()],
        "needs": one.needs,
        "not_on_opensearch": one.only_elasticsearch,
        "runbook": one.runbook,
        "seconds": one.seconds,
    }


@app.command()
def run(
    names: Annotated[list[str] | None, typer.Argument(help="Names of experiments, see `list`.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    guide: Annotated[bool, typer.Option("--guide", help="The six of the guide, in less than ten minutes.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="The three fastest.")] = False,
    operator: Annotated[str, typer.Option("--operator", help="Your name, for the record.")] = "",
    seed: Annotated[int, typer.Option("--seed", help="The same seed makes the same changes.")] = 1,
    keep: Annotated[bool, typer.Option("--keep", help="Keep databases and indexes, to inspect them.")] = False,
    json: Json = False,
    runs: Runs = RUNS,
    database_url: DatabaseUrl = None,
    elastic_url: ElasticUrl = None,
    product: Annotated[str | None, typer.Option(help=f"The embedded search server: {PRODUCTS}.")] = None,
    alerts: Annotated[
        bool, typer.Option("--alerts/--no-alerts", help="Watch the shipped alerts in a real Prometheus.")
    ] = True,
    code: Annotated[
        Path | None, typer.Option("--code", help="Start the daemons from this copy of the code.", exists=True)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run; start nothing.")] = False,
) -> None:
    """Run experiments; each writes a report. After Ctrl-C everything is restored first.

    Example: python -m labs run --guide --product opensearch
    """
    if product and elastic_url:
        raise UnknownLab("--product chooses the embedded server, and --elastic-url gives another one: use one of them")
    wanted = _release(product or "elasticsearch")
    chosen = _chosen(names or [], all_=all_, guide=guide, quick=quick)
    if all_ and release_of(wanted).product == OPENSEARCH:
        for one in chosen:
            if one.only_elasticsearch:
                say(f"labs: {one.name} is left out, not on OpenSearch: {one.only_elasticsearch}")
        chosen = [one for one in chosen if not one.only_elasticsearch]
    if dry_run:
        for one in chosen:
            print(f"{one.name:<26} {one.seconds:>3} s  {one.title}" + (f" (needs {one.needs})" if one.needs else ""))
        return
    place = code.resolve() if code else None
    wishes = RunOptions(runs, operator, seed, keep, database_url, elastic_url, alerts, place, wanted)
    session = Session(wishes)
    exit_code = session.run(chosen)
    if json:
        print(jsonlib.dumps([_report(record) for record, _ in session.outcomes], indent=1))
    else:
        _tell(session)
    raise typer.Exit(exit_code)


def _release(product: str) -> str:
    try:
        return release(product)
    except OutboxError as problem:
        raise UnknownLab(f"--product: {problem.message}") from None


def _chosen(names: list[str], *, all_: bool, guide: bool, quick: bool) -> list[Experiment]:
    known = all_experiments()
    if sum([bool(names), all_, guide, quick]) > 1:
        raise UnknownLab("use only one of: names, --all, --guide, --quick")
    if all_:
        return list(known.values())
    if guide:
        return [one for one in known.values() if one.guide]
    wanted = list(QUICKEST) if quick else names
    if not wanted:
        raise UnknownLab("give names of experiments, or --all, --guide or --quick; `python -m labs list` shows all")
    return [find(name) for name in wanted]


def _tell(session: Session) -> None:
    for record, verdict in session.outcomes:
        print(f"{verdict.result:<12} {record.name:<26} {record.seconds:5.0f} s  {record.folder / 'report.html'}")


def _report(record: Record) -> object:
    return jsonlib.loads((record.folder / "report.json").read_text(encoding="utf-8"))


@app.command()
def verify(folders: Annotated[list[Path], typer.Argument(help="Folders of runs.")]) -> None:
    """Evaluate stored runs again from their raw data, without servers, and check that no file was changed."""
    good = True
    for folder in folders:
        record = _record(folder)
        before = jsonlib.loads((folder / "report.json").read_text(encoding="utf-8"))["verdict"]
        changed = manifest.problems(folder)
        now = judge(record, find(record.name)).result
        same = now == before and not changed
        good = good and same
        print(f"{'same' if same else 'DIFFERENT':<10} {before} -> {now}  {folder}")
        for problem in changed:
            print(f"  {problem}")
    raise typer.Exit(0 if good else 1)


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    to: Annotated[Path | None, typer.Option("--to", help="The archive; RUN.tar.gz if not given.")] = None,
) -> None:
    """Pack a run into one archive, with a newly written report."""
    record = _record(folder)
    experiment = find(record.name)
    report.write(record, experiment, judge(record, experiment))
    archive = to or Path(f"{folder.name}.tar.gz")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=folder.name)
    print(archive)


@app.command()
def index(
    runs: Runs = RUNS,
    table: Annotated[bool, typer.Option("--table", help="Print the newest run of each lab as Markdown.")] = False,
    conclusions: Annotated[
        bool,
        typer.Option("--conclusions", help="Print the guide's conclusions, filled in from the newest runs."),
    ] = False,
    reports: Annotated[
        Path | None,
        typer.Option("--reports", help="Copy the newest run's report of each lab in Markdown there.", metavar="FOLDER"),
    ] = None,
) -> None:
    """Write an overview page of all runs."""
    if not runs.is_dir():
        raise LabError(f"there are no runs in {runs}")
    if conclusions:
        print(gallery.conclusions(runs))
        return
    if reports is not None:
        print(f"{len(gallery.write_reports(runs, reports))} reports in {reports}")
        return
    print(gallery.table(runs) if table else gallery.write(runs))


@app.command()
def clean(
    runs: Runs = RUNS,
    reports: Annotated[bool, typer.Option("--reports", help="Also remove the folders of the runs.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    database_url: DatabaseUrl = None,
    elastic_url: ElasticUrl = None,
) -> None:
    """Remove the databases and indexes that runs kept, or left when they were killed. With --reports also the runs."""
    if reports and not yes and not (sys.stdin.isatty() and typer.confirm(f"Remove all runs in {runs}?")):
        raise UnknownLab("to remove reports, confirm it or give --yes")
    for line in cleaning.clean(runs, database_url, elastic_url, reports=reports):
        print(line)


def _record(folder: Path) -> Record:
    if not (folder / "record.json").exists():
        raise LabError(f"{folder} is not a run: it has no record.json")
    return Record(folder)


def main() -> None:
    try:
        app(prog_name="python -m labs")
    except LabError as error:
        say(f"labs: {error}")
        sys.exit(error.exit_code)
