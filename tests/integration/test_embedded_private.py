"""Root and the servers' account, or others on the machine: no link and no folder of another account is used."""

import os
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from outbox.config import service
from outbox.embedded import EmbeddedPostgres
from outbox.embedded.errors import FolderNotOurs
from outbox.embedded.folders import FolderLock, make_folder
from outbox.embedded.safe_files import check_place, new_file
from outbox.embedded.server_account import Account
from tests.fixtures.embedded import cannot_show

STRANGER = 54321


@pytest.fixture
def as_root() -> None:
    if os.geteuid() != 0:
        cannot_show("only root starts servers as another account, and can give a file to one")


@pytest.fixture
def account(as_root: None) -> Account:
    return Account.for_servers()


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file of root's that nobody but root may change; it is still so at the end."""
    file = tmp_path / "victim"
    file.write_text("root's")
    file.chmod(0o600)
    yield file
    about = file.stat()
    assert (file.read_text(), about.st_uid, about.st_mode & 0o777) == ("root's", 0, 0o600)


@pytest.fixture
def theirs(server_folder: Path, account: Account) -> Path:
    """A folder of the account's: it may have put any link there."""
    return account.give_folder(server_folder / "theirs")


def test_a_file_that_root_writes_replaces_a_link_and_is_only_for_the_account(
    theirs: Path, account: Account, victim: Path
) -> None:
    (theirs / "elasticsearch.yml").symlink_to(victim)
    file = account.give_file(theirs / "elasticsearch.yml", "new")
    about = file.lstat()
    assert (file.read_text(), about.st_uid, about.st_gid, oct(about.st_mode)) == ("new", 0, account.gid, "0o100640")
    assert account.run(["/bin/cat", str(file)], Path("/")) == "new"


def test_a_folder_that_is_a_link_or_another_accounts_is_neither_given_nor_written_to(
    server_folder: Path, account: Account, tmp_path: Path
) -> None:
    roots, strangers = tmp_path / "roots", server_folder / "strangers"
    roots.mkdir(mode=0o700)
    strangers.mkdir()
    os.chown(strangers, STRANGER, STRANGER)
    (server_folder / "data").symlink_to(roots)
    acts: list[Callable[[], object]] = [
        lambda: account.give_folder(server_folder / "data"),
        lambda: account.share_folder(server_folder / "data"),
        lambda: account.give_file(server_folder / "data" / "x", "text"),
        lambda: account.give_folder(strangers),
        lambda: account.give_file(strangers / "x", "text"),
    ]
    for act in acts:
        with pytest.raises(FolderNotOurs, match="OUTBOX_DATA_DIR"):
            act()
    assert (roots.stat().st_uid, list(roots.iterdir()), list(strangers.iterdir())) == (0, [], [])


def test_a_log_replaces_a_link_and_a_lock_that_is_one_or_another_accounts_is_refused(
    theirs: Path, victim: Path, tmp_path: Path
) -> None:
    (theirs / "server.log").symlink_to(victim)
    with os.fdopen(new_file(theirs / "server.log"), "w") as log:
        log.write("said")
    assert (theirs / "server.log").read_text() == "said"
    for lead_to in (victim, tmp_path / "made-by-root"):
        (theirs / "lock").unlink(missing_ok=True)
        (theirs / "lock").symlink_to(lead_to)
        with pytest.raises(FolderNotOurs):
            FolderLock(theirs).acquire()
    assert not (tmp_path / "made-by-root").exists()
    (theirs / "lock").unlink()
    (theirs / "lock").touch()
    os.chown(theirs / "lock", STRANGER, STRANGER)
    with pytest.raises(FolderNotOurs):
        FolderLock(theirs).acquire()


def test_a_folder_that_an_earlier_release_gave_away_is_taken_back_and_its_links_are_not_followed(
    server_folder: Path, account: Account, victim: Path
) -> None:
    folder = server_folder / "postgresql"
    server = EmbeddedPostgres(folder, settings={"fsync": "off"}).start()
    server.stop()
    os.chown(folder, account.uid, account.gid)
    folder.chmod(0o700)
    for name in ("server.log", "server.log.1"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(victim)
    with server:
        psycopg.connect(server.url).close()
    assert (folder.stat().st_uid, oct(folder.stat().st_mode)) == (0, "0o40750")
    assert "ready to accept connections" in (folder / "server.log").read_text()
    for name in ("server.log", "lock", "password", "data"):
        with pytest.raises(subprocess.CalledProcessError):
            account.run(["/bin/ln", "-sfT", str(victim), str(folder / name)], Path("/"))
    (folder / "password").unlink()
    (folder / "password").symlink_to(victim)
    with pytest.raises(FolderNotOurs):
        server.database_url("postgres")


def test_servers_never_run_as_root_and_get_no_secret_of_the_callers_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """initdb had all of it, and its account reads the environment of its own processes."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    account = Account.for_servers()
    assert account.uid != 0
    shown = account.run(["/usr/bin/env"], Path("/"))
    assert "PATH=" in shown
    assert "canary" not in shown


@pytest.fixture
def shared_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for /tmp, and a user without a home, who has a cache there."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(folder))

    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return folder


def test_the_cache_of_a_user_without_a_home_is_used_only_if_it_is_theirs(
    as_root: None, shared_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox.config.service.os.geteuid", lambda: 1000)
    data_dir = service.default_data_dir()
    monkeypatch.undo()
    assert data_dir == shared_tmp / "cache-1000" / "outbox"
    check_place(data_dir)
    # Another account was faster: a folder of theirs, or a link.
    (shared_tmp / "cache-1000").mkdir()
    os.chown(shared_tmp / "cache-1000", STRANGER, STRANGER)
    with pytest.raises(FolderNotOurs, match="cache-1000"):
        FolderLock(data_dir).acquire()
    (shared_tmp / "cache-1000").rmdir()
    (shared_tmp / "cache-1000").symlink_to("/root")
    os.lchown(shared_tmp / "cache-1000", STRANGER, STRANGER)
    with pytest.raises(FolderNotOurs, match="cache-1000"):
        make_folder(data_dir)
    # One that everybody may write to and nothing protects is no place at all.
    shared_tmp.chmod(0o777)
    with pytest.raises(FolderNotOurs, match="/tmp"):
        make_folder(shared_tmp / "other" / "outbox")


def test_the_password_is_not_shown_to_whoever_took_the_port(server_folder: Path) -> None:
    """They would ask for it in clear: the address that clients are given allows no other login than SCRAM."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as impostor:

        def ask() -> None:
            connection, _ = impostor.accept()
            with connection:
                connection.settimeout(10)
                length = struct.unpack("!I", connection.recv(4))[0]
                if connection.recv(length - 4) == struct.pack("!I", 80877103):  # "TLS?" "no"
                    connection.sendall(b"N")
                    connection.recv(4096)
                connection.sendall(b"R" + struct.pack("!II", 8, 3))
                heard.append(connection.recv(4096))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        server = EmbeddedPostgres(server_folder, port=impostor.getsockname()[1])
        server._account.give_file(server_folder / "password", "the-password")
        with pytest.raises(psycopg.OperationalError, match="scram-sha-256"):
            psycopg.connect(server.url, connect_timeout=5)
        asking.join(10)
    assert heard == [b""]
