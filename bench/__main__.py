"""`python -m bench NAME`: runs benchmarks, prints and writes their results. Exit 1 = a bar was missed."""

import importlib
import os
import sys
import time
import traceback
from contextlib import ExitStack
from math import inf
from typing import Annotated

import typer

from bench import plan
from bench.result import BenchmarkResult, CannotRun, progress, versions
from bench.stack import servers
from labs.client import PRODUCTS, release
from outbox.errors import OutboxError

NAMES = (
    "drain",
    "flat",
    "pinned",
    "latency",
    "memory",
    "producer",
    "console",
    "verify",
    "peers",
    "herd",
    "startup",
    "fanout",
    "backfill",
    "parallel",
)
# These take longer, or need more than the two servers, or others.
MORE = ("drain_matrix", "profile", "products", "kafka", "database_cost", "latency_at")
app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def bench(
    names: Annotated[list[str], typer.Argument(help=f"all, or any of {', '.join(NAMES + MORE)}.")],
    smoke: Annotated[bool, typer.Option(help="A tiny run that only shows that it works.")] = False,
    rounds: Annotated[int | None, typer.Option(help="How many times each side is measured.")] = None,
    product: Annotated[str | None, typer.Option(help=f"The embedded search server: {PRODUCTS}.")] = None,
    option: Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE for the benchmark.")] = None,
    missing: Annotated[bool, typer.Option(help="Only those without a full result of this program.")] = False,
    limit: Annotated[float, typer.Option("--minutes", help="Begin none that would end later than this.")] = inf,
) -> None:
    """Run benchmarks on embedded servers, or on those in OUTBOX_TEST_DATABASE_URL and OUTBOX_TEST_ELASTIC_URL.

    Examples:
      scripts/bench drain
      scripts/bench drain --set size=5000 --set lanes=4
      scripts/bench drain --product opensearch
      scripts/bench products        (the drain on Elasticsearch and OpenSearch by turns)
      scripts/bench kafka           (a topic, the table and raw `_bulk` by turns; Debezium)
      scripts/bench all --smoke
      scripts/bench all --missing --minutes 60   (a session; the next one goes on)
    """
    chosen = list(NAMES + MORE if names == ["all"] else names)
    if unknown := [name for name in chosen if name not in NAMES + MORE]:
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}; available are {', '.join(NAMES + MORE)}")
    if missing:
        chosen = plan.missing(chosen)
    codes = [0]
    ends = time.monotonic() + limit * 60
    with ExitStack() as undo:
        stack = None
        while name := plan.fitting(chosen, (ends - time.monotonic()) / 60):
            stack = stack or undo.enter_context(servers(heap="1g" if smoke else "2g", release=_release(product)))
            progress(f"{name}, about {plan.minutes(name):.0f} min; {len(chosen)} to do: {_minutes(chosen)}")
            chosen.remove(name)
            codes.append(_one(name, stack, smoke, rounds, option or [], product))
    if chosen:
        progress(f"left for another session, {_minutes(chosen)}: {', '.join(chosen)}")
    raise typer.Exit(max(codes, key=(0, 3, 1).index))


def _minutes(names: list[str]) -> str:
    return f"about {sum(map(plan.minutes, names)):.0f} min on two quiet cores"


def _release(product: str | None) -> str:
    if product and os.environ.get("OUTBOX_TEST_ELASTIC_URL"):
        raise typer.BadParameter("--product is for an embedded server, and OUTBOX_TEST_ELASTIC_URL gives one")
    try:
        return release(product or "elasticsearch")
    except OutboxError as problem:
        raise typer.BadParameter(problem.message) from None


def _one(
    name: str, stack: object, smoke: bool, rounds: int | None, options: list[str], product: str | None = None
) -> int:
    module = importlib.import_module(f"bench.{name}")
    chosen: dict[str, object] = {key: _value(text) for key, text in (o.split("=", 1) for o in options)}
    if rounds is not None:
        chosen["rounds"] = rounds
    began = time.monotonic()
    try:
        result: BenchmarkResult = module.run(stack, smoke=smoke, **chosen)
    except CannotRun as error:
        print(f"{name}: skipped: {error}", file=sys.stderr)
        return 3
    except Exception:
        traceback.print_exc()
        return 1
    result.seconds = time.monotonic() - began
    result.turned = {**chosen, **({"product": product} if product else {})}
    result.servers = {**stack.versions(), **result.servers}  # type: ignore[attr-defined]
    result.show()
    result.write(versions(result.servers))
    return 0 if result.passed else 1


def _value(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        return text


if __name__ == "__main__":
    app()
