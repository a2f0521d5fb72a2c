"""As whom the servers run, and what that account can reach."""

from pathlib import Path

import pytest

from outbox.embedded.folders import default_data_dir
from outbox.embedded.server_account import Account

STRANGER = Account(uid=54321, gid=54321)


def test_servers_never_run_as_root() -> None:
    assert Account.for_servers().uid != 0


def test_what_the_caller_may_not_hand_over_is_found_by_its_permission_bits(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "inside").mkdir(parents=True)
    closed.chmod(0o700)
    assert not STRANGER.can_reach(closed / "inside")
    assert STRANGER.can_reach(Path("/usr"))


def test_the_data_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_DATA_DIR", "/somewhere/else")
    assert default_data_dir() == Path("/somewhere/else")


def test_a_tool_of_a_server_gets_no_secret_of_the_callers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """initdb had all of it, and its account reads the environment of its own processes."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    shown = Account.for_servers().run(["/usr/bin/env"], Path("/"))
    assert "PATH=" in shown
    assert "canary" not in shown
