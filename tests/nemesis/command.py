"""Owns the command line of the nemesis: what is asked for, where the history goes, how it leaves."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import FrameType

from labs.client import PRODUCTS, release
from labs.worker import ROOT
from outbox.errors import OutboxError
from tests.nemesis import agreement, hours, hours_judge, report
from tests.nemesis.agreement import SecondOpinion
from tests.nemesis.archive import pack
from tests.nemesis.cluster_run import ClusterRun
from tests.nemesis.evidence import Evidence
from tests.nemesis.failover_run import FailoverRun
from tests.nemesis.kafka_run import KafkaRun
from tests.nemesis.lanes import LANES
from tests.nemesis.poison import KINDS
from tests.nemesis.recipe import Recipe, compose, fixed
from tests.nemesis.run import Run
from tests.nemesis.shrink import shrink
from tests.nemesis.starvation_run import StarvationRun
from tests.nemesis.verdict import NemesisVerdict

RUNS: dict[str, type[Run]] = {
    "failover": FailoverRun,
    "cluster": ClusterRun,
    "starvation": StarvationRun,
    hours_judge.LANE: hours.HoursRun,
}
PAGE = ROOT / "docs" / "reliability.md"
ARCHIVES = ROOT / "docs" / "reliability"
HELP = """\
Four workers on a real PostgreSQL and a real Elasticsearch or OpenSearch, under load, while everything is killed,
frozen, cut, stalled, restarted and flooded; then healed, drained, and judged (I1 to I19) by a ledger and a log of
every step.

Before the storm comes the lane of the neighbours: innocent events beside poison of every kind, without any fault; their
p99 must stay under twice that of a calm. It takes 4 minutes beside a storm of 10 or more; beside a shorter one a
few seconds, which are too short to judge a p99.

With --wide the seed also composes what the run contains: which loads in which index, ids of which type, which settings,
which faults and commands. It prints the ingredients. --shrink runs it again with ingredients taken away, for as long as
it fails.

The plan of faults follows from the seed alone. What a fault does is measured: one that did not bite proves nothing.

examples:
  scripts/nemesis --wide --minutes 2 --seed 20261119   what scripts/test --all runs, with the day for a seed
  scripts/nemesis --wide --seed 7 --shrink        the fewest ingredients that still fail
  scripts/nemesis --wide --seed 7 --without kill_9,drafts   the same without these
  scripts/nemesis --minutes 30 --seed 1 --record --archive     what docs/reliability.md records
  scripts/nemesis --product opensearch --minutes 10 --record --archive   the same on OpenSearch, recorded apart
  scripts/nemesis --source kafka --minutes 10 --record --archive   three brokers, Connect and a consumer group
  scripts/nemesis --lane neighbours --minutes 2   innocents beside poison, without a storm
  scripts/nemesis --judge build/nemesis/FOLDER    judge a stored history, or an unpacked archive, without servers
  scripts/nemesis --hours 1.67                    500 events per second with kills: what grows with time?
  scripts/nemesis --hours 1.67 --continue build/nemesis/FOLDER   the same, after Ctrl-C or SIGTERM

exit: 0 all held and every fault bit, 1 an invariant is broken or the two judges disagree, 75 no servers
      3 a fault or a poison did not bite often enough, or there is nothing to judge by
"""


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("scripts/nemesis", description=HELP, formatter_class=form)
    parser.add_argument("--minutes", type=float, default=2.0, help="how long it storms (default 2)")
    parser.add_argument("--seed", type=int, default=1, help="the plan of faults (default 1)")
    told = "a steady load of so many hours instead of a storm: memory, sizes and files are recorded, and must be flat"
    parser.add_argument("--hours", type=float, metavar="N", help=told)
    told = "go on to N hours with the run in this folder, which was stopped"
    parser.add_argument("--continue", dest="old", type=Path, metavar="FOLDER", help=told)
    parser.add_argument("--rate", type=float, help=f"events per second (default 50; of --hours {hours.RATE:g})")
    parser.add_argument("--product", default="elasticsearch", help=f"the search server: {PRODUCTS}")
    told = "where workers read from (default: table; with --wide the seed says)"
    parser.add_argument("--source", choices=("table", "kafka"), help=told)
    parser.add_argument("--wide", action="store_true", help="compose what the run contains from the seed")
    told = "take these ingredients away, separated by commas"
    parser.add_argument("--without", default="", metavar="NAMES", help=told)
    parser.add_argument("--shrink", action="store_true", help="find the fewest ingredients with which it still fails")
    parser.add_argument(
        "--lane", choices=("all", "storm", "neighbours", *LANES), default="all", help="run only this one"
    )
    told = "only these kinds, separated by commas: to find out which one holds up its neighbours"
    parser.add_argument("--poison", default="", metavar="KINDS", help=told)
    parser.add_argument("--out", type=Path, help="folder for the raw history (default: a new one in build/nemesis)")
    parser.add_argument("--judge", type=Path, metavar="FOLDER", help="only judge a stored history")
    told = "also pack the history (without a name: nemesis.tar.xz, or nemesis-PRODUCT.tar.xz in docs/reliability)"
    parser.add_argument("--archive", type=Path, metavar="FILE", nargs="?", const=True, help=told)
    told = "also write the tables into a page (without a name: docs/reliability.md)"
    parser.add_argument("--record", type=Path, metavar="PAGE", nargs="?", const=PAGE, help=told)
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    asked = parser.parse_args(argv)
    if asked.hours or asked.old:
        _check_hours(parser, asked)
    asked.rate = asked.rate or (hours.RATE if asked.hours else 50.0)
    _check(parser, asked)
    try:
        asked.release = release(asked.product)
    except OutboxError as problem:
        parser.error(f"--product: {problem.message}")
    if unknown := set(_kinds(asked.poison)) - KINDS.keys():
        parser.error(f"--poison: unknown {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    return asked


def _check(parser: argparse.ArgumentParser, asked: argparse.Namespace) -> None:
    """Leaves with an error for what does not go together."""
    if not 0 < asked.minutes <= 24 * 60:
        parser.error("--minutes must be above 0 and at most 1440")
    if not 0 < asked.rate <= 1000:
        parser.error("--rate must be above 0 and at most 1000")
    asked.recipe = hours.RECIPE if asked.hours else _recipe(parser, asked)
    if asked.lane in LANES and asked.wide:
        parser.error(f"--lane {asked.lane} has a world of its own: leave --wide out")
    if asked.recipe.has("kafka") and (asked.lane not in ("all", "storm") or asked.poison):
        parser.error("--source kafka has no lane of the neighbours: leave --lane and --poison out")
    if asked.lane not in ("all", hours_judge.LANE, *(("storm",) if asked.wide else LANES)) and (
        asked.record or asked.archive
    ):
        parser.error("--record and --archive are of a whole run: leave --lane out")
    if asked.out and asked.out.exists() and any(asked.out.iterdir()):
        parser.error(f"{asked.out} is not empty: a history is never written over")
    if asked.judge and not (asked.judge / "about.json").exists():
        parser.error(f"{asked.judge} holds no about.json: it is no history, or of a run that did not come to its end")


def _check_hours(parser: argparse.ArgumentParser, asked: argparse.Namespace) -> None:
    others = (asked.wide, asked.shrink, asked.source, asked.poison, asked.without, asked.lane != "all")
    if not asked.hours or any(others):
        parser.error(
            "--hours goes with --seed, --rate, --product, --out, --record and --continue; --continue with --hours"
        )
    asked.lane, asked.minutes = hours_judge.LANE, asked.hours * 60
    if asked.old:
        state = hours.state_in(asked.old)
        if state is None:
            parser.error(f"{asked.old} holds no state.json: it is no run of --hours, or its load had not begun")
        asked.seed, asked.rate, asked.product = state["seed"], state["rate"], state["release"]


def _recipe(parser: argparse.ArgumentParser, asked: argparse.Namespace) -> Recipe:
    of_kafka = None if asked.source is None else asked.source == "kafka"
    recipe = compose(asked.seed, kafka=of_kafka) if asked.wide else fixed(kafka=bool(of_kafka))
    if unknown := set(_kinds(asked.without)) - recipe.ingredients:
        parser.error(f"--without: not in this run: {', '.join(sorted(unknown))}; there are {recipe}")
    if asked.shrink and (asked.judge or asked.record or asked.archive or asked.json):
        parser.error("--shrink prints only what is left")
    return recipe.without(_kinds(asked.without))


def main(argv: Sequence[str]) -> int:
    asked = _arguments(argv)
    folder = asked.judge or asked.old or asked.out or _new_folder(asked.seed)
    if not asked.judge:
        signal.signal(signal.SIGTERM, _leave)
        try:
            if asked.shrink:
                return shrink(asked.recipe, folder, partial(_broken, asked), _say)
            _new_run(asked, folder).run()
        except OutboxError as problem:
            _say(str(problem))
            return problem.exit_code
        except KeyboardInterrupt:
            _say("interrupted; servers and workers are stopped, nothing is judged")
            if hours.state_in(folder):
                _say(f"go on with: scripts/nemesis --hours {asked.hours:g} --continue {_shown(folder)}")
            return 130
    return _judge(asked, folder)


def _judge(asked: argparse.Namespace, folder: Path) -> int:
    found: Evidence
    judged: NemesisVerdict
    opinion: SecondOpinion | None
    if hours_judge.is_of_hours(folder):
        _say("judging")
        found, judged, opinion = hours_judge.judged(folder)
    else:
        found, judged = agreement.evidence(folder)
        opinion = agreement.ask(found, judged) if judged.counts else None
    told = {**judged.as_json(), "second_judge": opinion.as_json() if opinion else None}
    (folder / "verdict.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
    _say(f"the raw history is in {_shown(folder)}")
    archive = _archive(found) if asked.archive is True else asked.archive
    if archive:
        _say(f"packed into {_shown(archive)}: {pack(found, archive) // 1000} KB")
    if asked.record:
        report.record(asked.record, judged, found.about, _shown(archive) if archive else None)
    if asked.json:
        print(json.dumps({"about": found.about, **told}, indent=1))
    else:
        print(report.text(judged, found.about))
        if opinion:
            print(opinion)
    return judged.code or int(opinion is not None and not opinion.agrees)


def _new_run(asked: argparse.Namespace, folder: Path) -> Run:
    seconds, kinds, recipe = asked.minutes * 60, _kinds(asked.poison), asked.recipe
    if recipe.has("kafka"):
        return KafkaRun(folder, seconds, asked.seed, asked.rate, _say, recipe, "storm", kinds, asked.release)
    run = RUNS.get(asked.lane, Run)
    return run(folder, seconds, asked.seed, asked.rate, _say, recipe, asked.lane, kinds, asked.release)


def _broken(asked: argparse.Namespace, recipe: Recipe, folder: Path) -> set[str]:
    """The names of what does not hold, in a run with these ingredients."""
    asked.recipe = recipe
    _new_run(asked, folder).run()
    _, judged = agreement.evidence(folder)
    return {one.name for one in judged.findings if not one.ok}


def _archive(found: Evidence) -> Path:
    return ARCHIVES / f"{report.record_name(found.about)}.tar.xz"


def _kinds(told: str) -> list[str]:
    return [name.strip() for name in told.split(",") if name.strip()]


def _leave(number: int, _: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _new_folder(seed: int) -> Path:
    return ROOT / "build" / "nemesis" / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-seed-{seed}"


def _shown(folder: Path) -> Path:
    folder = folder.resolve()
    return folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
