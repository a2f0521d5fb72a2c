"""A crash point's verdict: a command that got no connection has none, and is started anew."""

from pathlib import Path

import pytest

from tests.nemesis.crash_campaign import MOST_STARTS, UNREACHABLE, Campaign
from tests.nemesis.crash_hooks import MARK


class Forge:
    """Ends what is started with the next of `codes`; the last one stays."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.waited = 0

    def wait(self, _pid: int) -> int:
        self.waited += 1
        return self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]


def campaign(forge: Forge, log: Path) -> Campaign:
    made = Campaign.__new__(Campaign)
    made.point, made.deaths = "in replay", 0
    made.forge = forge  # type: ignore[assignment]
    made.start = lambda *_, **__: (1, log)  # type: ignore[method-assign]
    log.write_text(f"{MARK}in replay")
    return made


def test_a_command_that_got_no_connection_is_started_anew_until_it_dies_at_the_point(tmp_path: Path) -> None:
    forge = Forge(UNREACHABLE, UNREACHABLE, -9)
    made = campaign(forge, tmp_path / "log")
    made.die("replay", after=1)
    assert (made.deaths, forge.waited) == (1, 3)


@pytest.mark.parametrize(("code", "starts"), [(0, 1), (1, 1), (UNREACHABLE, MOST_STARTS)])
def test_any_other_end_is_a_verdict_and_so_is_a_database_that_stays_away(
    tmp_path: Path, code: int, starts: int
) -> None:
    forge = Forge(code)
    with pytest.raises(AssertionError, match=f"left with {code} instead of dying"):
        campaign(forge, tmp_path / "log").die("replay", after=1)
    assert forge.waited == starts
