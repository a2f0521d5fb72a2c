"""Owns the Debian package: the program in /opt/outbox, the units of deploy/systemd, the folders of their secrets."""

import os
import shutil
from pathlib import Path

from tests.deployed.debian import mirror
from tests.deployed.shell import ROOT, DeploymentFailed, run
from tests.release.archives import commit_time

SUITE, PYTHON = "bookworm", "3.11"  # its Python is the package's
CONTROL = """\
Package: outbox-projector
Version: {version}-1
Architecture: {architecture}
Maintainer: The maintainers of outbox-projector <root@localhost>
Depends: python{python}, adduser
Recommends: systemd (>= 250)
Section: database
Priority: optional
Description: transactional outbox projector, PostgreSQL to Elasticsearch
 The daemon, its console and its commands, with units for systemd. Secrets are
 written to /etc/outbox after the installation, as /usr/share/doc/outbox says.
"""
# What the block in deploy/README.md does before the secrets are written. No unit is started: they have none yet.
POSTINST = """\
#!/bin/sh
set -e
umask 022
for part in projector console; do
  getent group outbox-$part-secrets >/dev/null || addgroup --system --quiet outbox-$part-secrets
  install -d -m 0750 -g outbox-$part-secrets /etc/outbox/$part
done
install -d -m 0700 /etc/outbox/migrate /etc/outbox/operator
/opt/outbox/bin/python -m compileall -q /opt/outbox/lib  # the units may not write it
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
"""
PRERM = """\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  systemctl disable --quiet outbox-console outbox-prune.timer 'outbox-projector@.service' || true
  systemctl stop 'outbox-*' || true
fi
find /opt/outbox -type d -name __pycache__ -prune -exec rm -rf {} +
"""
POSTRM = """\
#!/bin/sh
set -e
if [ "$1" = purge ]; then
  for part in projector console migrate operator; do
    rmdir --ignore-fail-on-non-empty /etc/outbox/$part 2>/dev/null || true
  done
  for part in projector console; do delgroup --quiet outbox-$part-secrets 2>/dev/null || true; done
fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
"""
SCRIPT = """\
#!/opt/outbox/bin/python
import sys
from {module} import main
sys.exit(main())
"""
SCRIPTS = {"outbox": "outbox.cli", "outbox-replay": "outbox.cli.replay"}


def build(tree: Path, wheel: Path, version: str, scratch: Path, dist: Path) -> Path:
    stage = scratch / "deb"
    _program(stage, wheel)
    _units(stage, tree)
    architecture = run("dpkg", "--print-architecture").strip()
    control = stage / "DEBIAN"
    control.mkdir()
    (control / "control").write_text(CONTROL.format(version=version, architecture=architecture, python=PYTHON))
    (control / "conffiles").write_text("/etc/outbox/outbox.env\n/etc/outbox/articles.env\n")
    for name, text in (("postinst", POSTINST), ("prerm", PRERM), ("postrm", POSTRM)):
        (control / name).write_text(text)
        (control / name).chmod(0o755)
    target = dist / f"outbox-projector_{version}-1_{architecture}.deb"
    env = {**os.environ, "SOURCE_DATE_EPOCH": commit_time()}
    run("dpkg-deb", "--root-owner-group", "-Zxz", "-z6", "--build", stage, target, env=env)
    return target


def _program(stage: Path, wheel: Path) -> None:
    """A virtual environment by hand: one that a tool makes here would name this machine's Python."""
    home = stage / "opt" / "outbox"
    packages = home / "lib" / f"python{PYTHON}" / "site-packages"
    packages.mkdir(parents=True)
    pip = (
        ROOT / ".venv" / "bin" / "python",
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--no-compile",
    )
    wanted = ("--target", packages, "--python-version", PYTHON, "--only-binary=:all:", "--no-deps")
    run(*pip, *wanted, "--require-hashes", "-r", ROOT / "requirements" / "image.txt")
    run(*pip, *wanted, wheel)
    shutil.rmtree(packages / "bin", ignore_errors=True)
    programs = home / "bin"
    programs.mkdir()
    (programs / "python").symlink_to(f"/usr/bin/python{PYTHON}")
    (home / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON}\n")
    for name, module in SCRIPTS.items():
        (programs / name).write_text(SCRIPT.format(module=module))
        (programs / name).chmod(0o755)
        link = stage / "usr" / "bin" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"/opt/outbox/bin/{name}")


def _units(stage: Path, tree: Path) -> None:
    units, settings = stage / "lib" / "systemd" / "system", stage / "etc" / "outbox"
    papers = stage / "usr" / "share" / "doc" / "outbox"
    for folder in (units, settings, papers):
        folder.mkdir(parents=True)
    systemd = tree / "deploy" / "systemd"
    for unit in (*systemd.glob("*.service"), *systemd.glob("*.timer")):
        shutil.copy(unit, units)
    for name in ("outbox.env", "articles.env"):
        shutil.copy(systemd / f"{name}.example", settings / name)
    for drop_in in systemd.glob("*.d"):  # for a search server with security, as the page says
        shutil.copytree(drop_in, papers / "systemd" / drop_in.name)
    shutil.copytree(tree / "docs" / "runbooks", papers / "runbooks")
    for paper in (tree / "docs" / "kafka-log.md", tree / "deploy" / "README.md", tree / "LICENSE"):
        shutil.copy(paper, papers)


def attempt(deb: Path, version: str, scratch: Path) -> str:
    """Installed, used, removed in an empty root of Debian. What it printed of itself."""
    root = scratch / "root"
    include = f"--include=python{PYTHON},adduser,systemd"
    try:
        run("mmdebstrap", "-q", "--variant=minbase", include, SUITE, root, f"deb {mirror()} {SUITE} main")
        shutil.copy(deb, root / "tmp" / deb.name)
        run("chroot", root, "dpkg", "-i", f"/tmp/{deb.name}")
        said = run("chroot", root, "outbox", "--version").strip()
        if version not in said:
            raise DeploymentFailed(f"the package's program says {said}")
        units = sorted(path.name for path in (root / "lib" / "systemd" / "system").glob("outbox-*"))
        named = [unit.replace("@.", "@all.") for unit in units]
        run("chroot", root, "systemd-analyze", "verify", "--recursive-errors=no", "--man=no", *named)
        missing = run("chroot", root, "outbox", "config", "check", check=False)
        if "DATABASE_URL" not in missing:
            raise DeploymentFailed(f"without settings, `outbox config check` says: {missing[-500:]}")
        run("chroot", root, "dpkg", "--purge", "outbox-projector")
        if left := [place for place in ("opt/outbox", "usr/bin/outbox", "etc/outbox") if (root / place).exists()]:
            raise DeploymentFailed(f"after the purge there is still {', '.join(left)}")
        return f"{said}; {len(units)} units verified; purged without a trace"
    finally:
        shutil.rmtree(root, ignore_errors=True)
