"""Owns the command line of scripts/release: the order of the steps, and what is said of each."""

import argparse
import shutil
import sys
import tempfile
import time
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


def main(arguments: list[str]) -> int:
    asked = _parser().parse_args(arguments)
    if not asked.dry_run:
        say("scripts/release only rehearses: call it with --dry-run, and publish by hand (RELEASE.md, steps 14 and 15)")
        return 2
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    with tempfile.TemporaryDirectory(dir=default_data_dir()) as scratch:
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
    _step("sdist and wheel, built twice: equal bytes")
    packages = archives.python_packages(scratch, dist)
    [wheel] = [path for path in packages if path.suffix == ".whl"]
    _step("chart and site")
    archives.chart(tree, version, dist)
    archives.site(version, dist)
    _step("Debian package")
    if shutil.which("dpkg-deb"):
        deb = debian_package.build(tree, wheel, version, scratch, dist)
        if tries and shutil.which("mmdebstrap"):
            say(f"   {debian_package.attempt(deb, version, scratch)}")
        elif tries:
            missing.append("the Debian package in a root of its own: no mmdebstrap (a Debian package)")
    else:
        missing.append("Debian package: no dpkg-deb")
    _step("image")
    missing += _image(version, tree, dist)
    _step("bill of materials, checksums, statement of provenance")
    paperwork.bill(version, dist)
    subjects = {path.name: archives.digest(path) for path in sorted(dist.iterdir())}
    said = paperwork.statement(subjects, run("git", "rev-parse", "HEAD").strip(), version)
    envelope, public = paperwork.sign(said, scratch, dist, version)
    say(f"   {paperwork.verify(envelope, public, scratch, dist)} artefacts are as signed")
    paperwork.checksums(dist)
    run("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=dist)
    if tries:
        missing += _installed(wheel, version, scratch)
    return missing


def _image(version: str, tree: Path, dist: Path) -> list[str]:
    if not ask("docker", "version", "--format", "{{.Server.Version}}").strip():
        return ["image: no Docker engine answers"]
    tag = f"outbox-projector:{version}"
    run("docker", "build", "-q", "-t", tag, ".", cwd=tree)
    run("docker", "save", "-o", dist / f"outbox-projector-image-{version}.tar", tag)
    return []


def _installed(wheel: Path, version: str, scratch: Path) -> list[str]:
    found = places.pythons()
    for name, python in found.items():
        _step(f"Python {name}, from a package index on loopback")
        for line in places.attempt(python, wheel, version, scratch / name):
            say(f"   {line}")
    return [f"Python {name}: not on this machine" for name in places.PYTHONS if name not in found]


def _step(text: str) -> None:
    say(f"{time.strftime('%H:%M:%S')} {text}")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (DeploymentFailed, MissingSoftware, ValueError) as error:
        say(f"FAILED: {error}")
        sys.exit(1)
