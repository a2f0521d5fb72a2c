"""Owns the artefacts that are archives of the commit: sdist and wheel, chart, site. Two runs give equal bytes."""

import gzip
import os
import shutil
import tarfile
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from tests.deployed.shell import ROOT, DeploymentFailed, run


def commit_time() -> str:
    return run("git", "log", "-1", "--format=%ct").strip()


def export(folder: Path) -> Path:
    """The commit's files, without what else lies in the checkout."""
    folder.mkdir(parents=True)
    run("git", "archive", "--output", folder / "tree.tar", "HEAD")
    tree = folder / "outbox-projector"
    with tarfile.open(folder / "tree.tar") as archive:
        archive.extractall(tree, filter="data")
    return tree


def digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def python_packages(scratch: Path, dist: Path) -> list[Path]:
    """sdist and wheel, built twice in folders of different names."""
    env = {**os.environ, "SOURCE_DATE_EPOCH": commit_time()}
    python = ROOT / ".venv" / "bin" / "python"
    made: list[dict[str, Path]] = []
    for name in ("first", "second-place"):
        tree, out = export(scratch / name), scratch / name / "dist"
        run(python, "-m", "hatchling", "build", "-d", out, cwd=tree, env=env)
        made.append({path.name: path for path in sorted(out.iterdir())})
    one, two = made
    if differ := [name for name in one if name not in two or digest(one[name]) != digest(two[name])]:
        raise DeploymentFailed(f"built twice, and not equal: {', '.join(differ)}")
    return [Path(shutil.copy2(path, dist)) for path in one.values()]


def archive(files: Iterable[tuple[Path, str]], target: Path) -> Path:
    """A .tar.gz with the commit's time and no owner. What links point to is in it, not the links."""
    moment = int(commit_time())

    def plain(found: tarfile.TarInfo) -> tarfile.TarInfo:
        found.uid = found.gid = 0
        found.uname = found.gname = ""
        found.mtime = moment
        found.mode = 0o755 if found.mode & 0o100 else 0o644
        return found

    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=moment) as packed,
        tarfile.open(fileobj=packed, mode="w", dereference=True, format=tarfile.PAX_FORMAT) as made,
    ):
        for path, name in sorted(files, key=lambda pair: pair[1]):
            made.add(path, name, recursive=False, filter=plain)
    return target


def files_of(folder: Path, under: str) -> list[tuple[Path, str]]:
    """Through links to folders too."""
    found = []
    for place, _, names in os.walk(folder, followlinks=True):
        found += [(Path(place) / name, f"{under}/{(Path(place) / name).relative_to(folder)}") for name in names]
    return found


def chart(tree: Path, version: str, dist: Path) -> Path:
    """As `helm package` makes it: a folder of the chart's name, with what its link `kubernetes` leads to."""
    return archive(
        files_of(tree / "deploy" / "helm", "outbox-projector"), dist / f"outbox-projector-chart-{version}.tgz"
    )


def site(version: str, dist: Path) -> Path:
    run(ROOT / "scripts" / "site")
    return archive(files_of(ROOT / "build" / "site", "site"), dist / f"outbox-projector-site-{version}.tar.gz")
