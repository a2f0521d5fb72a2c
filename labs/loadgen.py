"""The guide's load generator: reads its variables, produces, prints what was committed and where the ledger is."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psycopg

from labs.ledger import Ledger
from labs.producing import SCENARIOS, Load, Producer

HELP = """\
python -m labs.loadgen: commits business rows with their outbox events, and keeps a ledger of what was committed.

  DATABASE_URL      the database (postgresql+psycopg:// is accepted); required
  LOADGEN_SCENARIO  create, update, mixed, hot-key or delete-heavy        (create)
  TOTAL_OPS         number of events                                      (3000)
  CONTENT_BYTES     size of a block's content                             (200)
  RATE_PER_SEC      events per second                                     (100)
  CONCURRENCY       connections                                           (20)
  LOADGEN_LEDGER    where the ledger is written       (build/loadgen/ledger-TIME.ndjson)
  LOADGEN_SEED      the same seed makes the same changes                  (1)
  API_BASE          accepted and ignored: there is no API between this generator and the database
"""


MOST = 10_000_000


class InvalidVariable(ValueError):
    """A variable that cannot be used; the message names it."""


def load_from(environ: Mapping[str, str]) -> Load:
    scenario = environ.get("LOADGEN_SCENARIO", "create")
    if scenario not in SCENARIOS:
        raise InvalidVariable(f"LOADGEN_SCENARIO is {scenario!r}; use one of {', '.join(SCENARIOS)}")
    return Load(
        scenario=scenario,
        total=int(_number(environ, "TOTAL_OPS", 3000)),
        content_bytes=int(_number(environ, "CONTENT_BYTES", 200)),
        rate=_number(environ, "RATE_PER_SEC", 100),
        concurrency=int(_number(environ, "CONCURRENCY", 20)),
    )


def _number(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name, str(default))
    try:
        value = float(text)
    except ValueError:
        raise InvalidVariable(f"{name} is {text!r}; use a number") from None
    if not 1 <= value <= MOST:
        raise InvalidVariable(f"{name} is {text}; use 1 to {MOST}")
    return value


def seed_from(environ: Mapping[str, str]) -> int:
    text = environ.get("LOADGEN_SEED", "1")
    try:
        return int(text)
    except ValueError:
        raise InvalidVariable(f"LOADGEN_SEED is {text!r}; use a whole number") from None


def database_url(environ: Mapping[str, str]) -> str:
    url = environ.get("DATABASE_URL")
    if not url:
        raise InvalidVariable("DATABASE_URL is required and not set")
    return url.replace("postgresql+psycopg://", "postgresql://", 1)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    if (sys.argv[1:] if arguments is None else arguments)[:1]:
        print(HELP)
        return 0
    environ = os.environ
    try:
        load, url, seed = load_from(environ), database_url(environ), seed_from(environ)
    except InvalidVariable as wrong:
        say(f"loadgen: {wrong}")
        return 2
    if environ.get("API_BASE"):
        say("loadgen: API_BASE is ignored: events are committed straight into the database")
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = Path(environ.get("LOADGEN_LEDGER") or f"build/loadgen/ledger-{stamp}-{os.getpid()}.ndjson")
    try:
        return _run(url, load, path, seed)
    except psycopg.OperationalError as away:
        say(f"loadgen: PostgreSQL does not answer: {str(away).splitlines()[0]}")
        return 75
    except psycopg.errors.UndefinedTable:
        say("loadgen: this database has no search_outbox_events; run `outbox migrate`")
        return 78


def _run(url: str, load: Load, path: Path, seed: int) -> int:
    with Ledger(path) as ledger:
        _require_outbox(url)
        producer = Producer(url, load, ledger, seed)
        producer.start()
        try:
            while producer.running:
                time.sleep(0.5)
                say(f"loadgen: {ledger.committed} of {load.total} committed")
        except KeyboardInterrupt:
            producer.stop()
        took = max(producer.seconds, 0.001)
        result = {
            "scenario": load.scenario,
            "committed": ledger.committed,
            "asked": load.total,
            "seconds": round(took, 2),
            "a_second": round(ledger.committed / took, 1),
            "lost_connections": producer.errors,
            "ledger": str(path),
        }
        print(json.dumps(result))
        return 0


def _require_outbox(url: str) -> None:
    with psycopg.connect(url, connect_timeout=5) as connection:
        connection.execute("select from search_outbox_events limit 0")


if __name__ == "__main__":
    sys.exit(main())
