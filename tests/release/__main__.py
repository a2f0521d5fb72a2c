"""Owns the command line of scripts/release: the order of the steps, and what is said of each."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outbox import __version__
from outbox.embedded.folders import default_data_dir
from tests.deployed.shell import ROOT, DeploymentFailed, MissingSoftware, ask, run, say
from tests.release import archives, debian_package, paperwork, places

EPILOG = """\
examples:
  scripts/release --dry-run              everything, into dist/
  scripts/release --dry-run --no-tries   makes the artefacts and tries none of them

exit codes: 0 all made and tried, 1 one failed, 2 usage, 3 one could not be made or tried here (what is missing is said)

The image needs a Docker engine (scripts/deployed docker runs it). Nothing is published: RELEASE.md says how.
"""
SHORT, LONG = 300.0, 1800.0  # seconds of a step; a Python took 150 to 485 s, the latter under a load of 14 and more


def main(arguments: list[str]) -> int:
    asked = _parser().parse_args(arguments)
    if not asked.dry_run:
        say("scripts/release only rehearses: call it with --dry-run, and publish by hand (RELEASE.md, steps 13 and 14)")
        return 2
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    home = default_data_dir()
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home) as scratch:
        missing = _rehearse(Path(scratch), dist, tries=asked.tries)
    for path in sorted(dist.iterdir()):
        print(f"{path.stat().st_size:>12,}  {archives.digest(path)[:16]}  {path.name}")
    for each in missing:
        print(f"MISSING {each}")
    return 3 if missing else 0


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="scripts/release",
        description="Make every artefact of a release and try each in an empty place.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--dry-run", action="store_true", help="rehearse: sign with a key made for it, publish nothing")
    made.add_argument("--no-tries", dest="tries", action="store_false", help="only make the artefacts")
    return made


def _rehearse(scratch: Path, dist: Path, *, tries: bool) -> list[str]:
    version, missing = __version__, []
    if dirty := run("git", "status", "--porcelain").strip():
        say(f"not of a commit, these files are left out as they are now:\n{dirty}")
    tree = archives.export(scratch / "tree")
    with step("sdist and wheel, built twice: equal bytes", SHORT):
        [wheel] = [path for path in archives.python_packages(scratch, dist) if path.suffix == ".whl"]
    with step("chart and site", SHORT):
        archives.chart(tree, version, dist)
        archives.site(version, dist)
    with step("Debian package", LONG):
        missing += _debian(tree, wheel, version, scratch, dist, tries=tries)
    with step("image", LONG):
        missing += _image(version, tree, dist)
    with step("bill of materials, checksums, statement of provenance", SHORT):
        _papers(version, scratch, dist)
    if tries:
        missing += _installed(wheel, version, scratch)
    return missing


def _debian(tree: Path, wheel: Path, version: str, scratch: Path, dist: Path, *, tries: bool) -> list[str]:
    if not shutil.which("dpkg-deb"):
        return ["Debian package: no dpkg-deb"]
    deb = debian_package.build(tree, wheel, version, scratch, dist)
    if tries and not shutil.which("mmdebstrap"):
        return ["the Debian package in a root of its own: no mmdebstrap (a Debian package)"]
    if tries:
        say(f"   {debian_package.attempt(deb, version, scratch)}")
    return []


def _image(version: str, tree: Path, dist: Path) -> list[str]:
    if not ask("docker", "version", "--format", "{{.Server.Version}}").strip():
        return ["image: no Docker engine answers"]
    tag = f"outbox-projector:{version}"
    run("docker", "build", "-q", "-t", tag, ".", cwd=tree)
    run("docker", "save", "-o", dist / f"outbox-projector-image-{version}.tar", tag)
    return []


def _papers(version: str, scratch: Path, dist: Path) -> None:
    paperwork.bill(version, dist)
    subjects = {path.name: archives.digest(path) for path in sorted(dist.iterdir())}
    said = paperwork.statement(subjects, run("git", "rev-parse", "HEAD").strip(), version)
    envelope, public = paperwork.sign(said, scratch, dist, version)
    say(f"   {paperwork.verify(envelope, public, scratch, dist)} artefacts are as signed")
    paperwork.checksums(dist)
    run("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=dist)


def _installed(wheel: Path, version: str, scratch: Path) -> list[str]:
    found = places.pythons()
    for name, python in found.items():
        with step(f"Python {name}, from a package index on loopback", LONG):
            for line in places.attempt(python, wheel, version, scratch / name):
                say(f"   {time.strftime('%H:%M:%S')} {line}")
    return [f"Python {name}: not on this machine" for name in places.PYTHONS if name not in found]


@contextmanager
def step(text: str, limit: float) -> Iterator[None]:
    """Says what begins and how long it took. After `limit` seconds it is an error, and its command is killed."""

    def late(*_: object) -> None:
        raise DeploymentFailed(f"{text}: not done within {limit:g} s")

    say(f"{time.strftime('%H:%M:%S')} {text}")
    began = time.monotonic()
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    say(f"   {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (DeploymentFailed, MissingSoftware, ValueError) as error:
        say(f"FAILED: {error}")
        sys.exit(1)
