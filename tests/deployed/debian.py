"""Owns what Debian brings: programs of this release, those of the newest one without their dependencies, and roots."""

import os
import re
import shutil
from pathlib import Path

from tests.deployed.shell import MissingSoftware, run, say

SOURCES = Path("/etc/apt/sources.list.d/debian.sources")


def require_root(what: str) -> None:
    if os.geteuid() != 0 or not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise MissingSoftware(f"{what}: it is set up only as root on Debian; elsewhere install it before")


def install(packages: dict[str, str]) -> None:
    """`packages` by the program that each brings."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if missing := [package for program, package in packages.items() if not shutil.which(program, path=path)]:
        say(f"   installing the Debian packages {' '.join(missing)}")
        run("apt-get", "update", "-qq")
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing, env=env)


def mirror() -> str:
    """The address that this machine's apt is configured with."""
    text = SOURCES.read_text() if SOURCES.exists() else ""
    found = re.search(r"^URIs:\s*(\S+)", text, re.MULTILINE)
    if not found:
        raise MissingSoftware(f"no address of Debian's packages: {SOURCES} has none")
    return found[1]


def fetch_programs(folder: Path, packages: tuple[str, ...]) -> Path:
    """The packages of Debian's newest release, unpacked in a folder and not installed."""
    programs, debs = folder / "x", folder / "debs"
    wanted = [name for name in packages if not list(debs.glob(f"{name}_*.deb"))]
    if wanted:
        debs.mkdir(parents=True, exist_ok=True)
        config = _apt(folder / "apt")
        run("apt-get", "-qq", "-c", config, "update")
        run("apt-get", "-qq", "-c", config, "download", *wanted, cwd=debs)
        for name in wanted:
            [deb] = debs.glob(f"{name}_*.deb")
            run("dpkg-deb", "-x", deb, programs)
    return programs


def _apt(folder: Path) -> Path:
    """A configuration of its own, so that the machine's lists stay as they are."""
    for name in (
        "etc/preferences.d",
        "etc/apt.conf.d",
        "etc/sources.list.d",
        "lists/partial",
        "cache/archives/partial",
    ):
        (folder / name).mkdir(parents=True, exist_ok=True)
    key = "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg"
    source = f"Types: deb\nURIs: {mirror()}\nSuites: sid\nComponents: main\n{key}\n"
    (folder / "etc/sources.list.d/sid.sources").write_text(source)
    (folder / "etc/sources.list").touch()
    config = folder / "apt.conf"
    config.write_text(
        f'Dir::Etc "{folder}/etc";\nDir::State::lists "{folder}/lists";\nDir::Cache "{folder}/cache";\n'
        'Dir::State::status "/var/lib/dpkg/status";\nAcquire::Check-Valid-Until "false";\n'
    )
    return config


def root_archive(folder: Path, suite: str) -> Path:
    """A small root of a release, as a tar file; made once."""
    archive = folder / f"{suite}.tar"
    if not archive.exists():
        say(f"   making a root of Debian {suite}")
        made = archive.with_suffix(".new.tar")
        options = ['--aptopt=Acquire::Check-Valid-Until "false"', "--variant=minbase", "--include=ca-certificates"]
        run("mmdebstrap", "-q", *options, suite, made, f"deb {mirror()} {suite} main")
        made.rename(archive)
    return archive
