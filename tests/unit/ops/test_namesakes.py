"""Another module called outbox, beside ours or in a project: said by the doctor, and at import where it is beside."""

import subprocess
import sys
from pathlib import Path

import outbox
from outbox.ops.doctor.namesakes import namesakes
from outbox.ports import Level

OURS = Path(outbox.__file__).parent


def imported(site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", "-W", "error", "-c", "import outbox"]
    return subprocess.run(command, cwd=site, capture_output=True, text=True, check=False)


def test_ours_alone_is_no_finding(tmp_path: Path) -> None:
    (tmp_path / "outbox").symlink_to(OURS)
    assert list(namesakes([str(OURS.parent), str(tmp_path), ""])) == []
    assert imported(tmp_path).returncode == 0


def test_the_package_of_that_name_beside_ours(tmp_path: Path) -> None:
    (tmp_path / "outbox").symlink_to(OURS)
    (tmp_path / "outbox.py").touch()
    (found,) = namesakes([str(tmp_path)])
    assert found.level is Level.WARN
    assert str(tmp_path / "outbox.py") in found.detail
    refused = imported(tmp_path)
    assert refused.returncode == 1
    assert "`outbox` is installed beside `outbox-projector`" in refused.stderr
