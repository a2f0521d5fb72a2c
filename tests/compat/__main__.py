"""Owns the command line of scripts/compat; the runs are beside it."""

import argparse
import signal
import sys

from tests.compat.combination import BY_NAME, COMBINATIONS
from tests.compat.outcome import Outcome, record, table
from tests.compat.run import run
from tests.compat.upgrade import PREVIOUS, upgrade

UPGRADE = "upgrade"
UPGRADE_WHAT = "old daemons under load, migrate, both, new ones alone, and back (--from REV: any revision or tag)"
NAMES = (*BY_NAME, UPGRADE)

EXAMPLES = """\
runs:
{runs}

exit codes: 0 all passed, 1 one failed, 2 usage, 3 one could not be run here (what is missing is said)

examples:
  scripts/compat                                  all of them, about {minutes} minutes
  scripts/compat opensearch-2 opensearch-3        these two
  scripts/compat --record                         all, then the table in docs/compatibility.md
  scripts/compat upgrade --from v0.1.0            from the code of that tag, taken from git
  nice -n 15 scripts/compat python-3.13           beside other work; logs and figures are in build/compat
"""


def listed() -> str:
    runs = [(combination.name, combination.what) for combination in COMBINATIONS]
    return "\n".join(f"  {name:<17} {what}" for name, what in [*runs, (UPGRADE, UPGRADE_WHAT)])


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="scripts/compat",
        description="Run the existing tests on other servers, another Python and behind a pooler.",
        epilog=EXAMPLES.format(runs=listed(), minutes=60),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("names", nargs="*", metavar="NAME", help="runs, by default all")
    made.add_argument(
        "--record", action="store_true", help="write every result in build/compat into the docs; other runs keep theirs"
    )
    made.add_argument("--from", dest="revision", default=PREVIOUS, metavar="REV", help="what `upgrade` starts from")
    return made


def main(arguments: list[str]) -> int:
    made = parser()
    asked = made.parse_args(arguments)
    if strange := [name for name in asked.names if name not in NAMES]:
        made.error(f"no run is called {', '.join(strange)}; --help names them")
    # Started in the background by a shell, SIGINT is ignored here and would be in every daemon that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    outcomes = [upgrade(asked.revision) if name == UPGRADE else run(BY_NAME[name]) for name in asked.names or NAMES]
    print(table(outcomes))
    if asked.record:
        record()
    return code(outcomes)


def code(outcomes: list[Outcome]) -> int:
    words = {outcome.word for outcome in outcomes}
    return 1 if "FAILED" in words else 3 if "MISSING" in words else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
