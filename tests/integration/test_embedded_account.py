"""As whom the servers run, and what that account can reach."""

import os
from pathlib import Path

import pytest

from outbox.embedded.account import Account, reachable_copy
from outbox.embedded.errors import FolderUnreachable
from outbox.embedded.folders import default_data_dir

STRANGER = Account(uid=54321, gid=54321)


def test_servers_never_run_as_root() -> None:
    assert Account.for_servers().uid != 0


def test_what_the_caller_may_not_hand_over_is_found_by_its_permission_bits(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "inside").mkdir(parents=True)
    closed.chmod(0o700)
    assert not STRANGER.can_reach(closed / "inside")
    assert STRANGER.can_reach(Path("/usr"))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "wheel"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "postgres").write_text("#!/bin/sh\n")
    (folder / "bin" / "postgres").chmod(0o700)
    (tmp_path / "home").chmod(0o700)
    return folder


def test_a_program_in_a_closed_home_is_copied_once_to_where_it_can_be_run(program: Path, server_folder: Path) -> None:
    copy = reachable_copy(program, STRANGER, server_folder / "postgresql")
    assert copy == server_folder / "postgresql"
    assert (copy / "bin" / "postgres").stat().st_mode & 0o755 == 0o755
    assert reachable_copy(program, STRANGER, copy) == copy


def test_a_program_that_can_be_reached_is_used_where_it_is(tmp_path: Path) -> None:
    mine = Account(os.geteuid(), os.getegid())
    assert reachable_copy(tmp_path, mine, tmp_path / "copy") == tmp_path


def test_a_copy_that_nobody_could_reach_is_refused(program: Path, tmp_path: Path) -> None:
    with pytest.raises(FolderUnreachable, match="OUTBOX_DATA_DIR"):
        reachable_copy(program, STRANGER, tmp_path / "home" / "copy")


def test_the_data_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_DATA_DIR", "/somewhere/else")
    assert default_data_dir() == Path("/somewhere/else")
