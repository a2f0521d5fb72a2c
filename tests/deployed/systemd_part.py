"""Owns the part `systemd`: the units of deploy/systemd under systemd as pid 1, by the commands of deploy/README.md."""

import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from tests.deployed import compose, images, scenario
from tests.deployed.debian import install, mirror, require_root
from tests.deployed.engine import docker_engine
from tests.deployed.scenario import Figures, Versions, execute
from tests.deployed.shell import ROOT, DeploymentFailed, await_until, run, say

SUITE = "bookworm"  # systemd 252 boots on the older control groups too
PACKAGES = "systemd,systemd-sysv,dbus,libnss-systemd,python3,python3-venv,ca-certificates,curl,procps"
PROJECTORS = ("outbox-projector@all", "outbox-projector@two")
UNITS = (*PROJECTORS, "outbox-console")
EXPOSURE_LIMIT = 2.0  # of 10; systemd calls 2 and less OK
URL = "postgresql://{}:wordloom@127.0.0.1:5435/wordloom_dev"
# What each line of the README's block reads from standard input.
SECRETS = {
    "migrate/database_url": URL.format("wordloom"),
    "operator/database_url": URL.format("search_outbox_operator"),
    "projector/database_url": URL.format("search_outbox_projector"),
    "console/database_url": URL.format("search_outbox_operator"),
    "console/console_tokens": (ROOT / "deploy" / "compose" / "console_tokens").read_text(),
}


def play(folder: Path, only_standins: bool, figures: Figures, versions: Versions) -> None:
    require_root("systemd as pid 1")
    install({"systemd-nspawn": "systemd-container", "mmdebstrap": "mmdebstrap"})
    root = _root(folder)
    with docker_engine(folder) as engine:
        images.provide(engine, ("postgres:18.1", "elasticsearch:8.14.1"), only_standins)
        with compose.up(engine, compose.INFRA, services=("db", "es")) as servers, booted(root) as machine:
            versions |= {"systemd": machine.run("systemctl", "--version").split()[1], **engine.versions}
            site = Systemd(machine, servers)
            figures |= _installed(site)
            scenario.prepare(site)
            figures |= _watched(site)
            scenario.play(site, figures)


def _root(folder: Path) -> Path:
    """A root with systemd and the program in it; made anew when the pinned packages change."""
    root, pinned = folder / "root", (ROOT / "requirements" / "image.txt").read_bytes()
    stamp = root / ".made"
    wanted = sha256(pinned).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        say("   making a root with systemd")
        shutil.rmtree(root, ignore_errors=True)
        options = ["--variant=minbase", f"--include={PACKAGES}"]
        run("mmdebstrap", "-q", *options, SUITE, root, f"deb {mirror()} {SUITE} main")
        for path in (images.bundle(), Path("/etc/resolv.conf"), Path("/etc/pip.conf")):
            if path.exists():
                shutil.copy(path, root / "etc" / path.name)
        (root / "src").mkdir()
        _checked_out(root / "src")
        _inside(root, "python3 -m venv /opt/outbox")
        _inside(root, "/opt/outbox/bin/pip install -q --require-hashes -r /src/requirements/image.txt")
        stamp.write_text(wanted)
    shutil.rmtree(root / "src")
    (root / "src").mkdir()
    _checked_out(root / "src")
    _inside(root, "/opt/outbox/bin/pip install -q --force-reinstall --no-deps --no-build-isolation /src")
    return root


def _checked_out(place: Path) -> None:
    """What git knows of, with what was changed and not committed."""
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in names:
        if (source := ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, place / name)


def _inside(root: Path, command: str) -> None:
    env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "PIP_CERT": "/etc/ca-certificates.crt", "HOME": "/root"}
    run("chroot", root, "sh", "-c", command, env=env)


class Machine:
    """A running systemd, seen from outside."""

    def __init__(self, leader: int) -> None:
        self._enter = ["nsenter", "-t", str(leader), "-m", "-u", "-i", "-p", "-n", "-C", "--"]

    def run(self, *argv: str, text: str | None = None, check: bool = True, env: Sequence[str] = ()) -> str:
        given = ["PATH=/opt/outbox/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", *env]
        words = [*self._enter, "env", "-i", "-C", "/src", *given, *argv]
        return run(*words, text=text, check=check, limit=240)

    def shown(self, unit: str, name: str) -> str:
        return self.run("systemctl", "show", "-P", name, unit).strip()


@contextmanager
def booted(root: Path) -> Iterator[Machine]:
    """On the network of this machine, so that the servers on its loopback are reached."""
    # A new id at each start, and nothing of an earlier run.
    for place in ("etc/outbox", "var/log/journal"):
        shutil.rmtree(root / place, ignore_errors=True)
    for name in ("group", "gshadow"):
        lines = (root / "etc" / name).read_text().splitlines(keepends=True)
        (root / "etc" / name).write_text("".join(line for line in lines if not line.startswith("outbox-")))
    for link in (root / "etc/systemd/system").glob("**/outbox-*"):
        link.unlink()
    (root / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
    options = ["--register=no", "--keep-unit", "-D", str(root), "--machine=outbox-deployed", "--boot"]
    with (root.parent / "boot.log").open("w") as log:
        nspawn = subprocess.Popen(["systemd-nspawn", *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        children = Path(f"/proc/{nspawn.pid}/task/{nspawn.pid}/children")
        await_until(lambda: children.read_text().split(), "a child of systemd-nspawn", 30)
        machine = Machine(int(children.read_text().split()[0]))
        states = ("running", "degraded")
        await_until(lambda: machine.run("systemctl", "is-system-running", check=False).strip() in states, "booted", 90)
        yield machine
        machine.run("systemctl", "poweroff", check=False)
        nspawn.wait(90)
    finally:
        nspawn.terminate()
        try:
            nspawn.wait(60)
        except subprocess.TimeoutExpired:
            nspawn.kill()


class Systemd:
    """Two groups on one host, which share the events; its servers are containers."""

    expected_failures = 0
    index = "search-index"

    def __init__(self, machine: Machine, servers: compose.Compose) -> None:
        self.machine = machine
        self._servers = servers
        self.database_url, self.client = servers.database_url, servers.client

    def owner(self, *arguments: str) -> str:
        return self._command("migrate", *arguments)

    def operator(self, *arguments: str) -> str:
        return self._command("operator", *arguments)

    def _command(self, part: str, *arguments: str) -> str:
        lines = self.machine.run("cat", "/etc/outbox/outbox.env").splitlines()
        env = [line for line in lines if line and line[0] != "#"]
        secret = f"DATABASE_URL_FILE=/etc/outbox/{part}/database_url"
        return self.machine.run("outbox", *arguments, env=[*env, secret])

    def start(self) -> None:
        self.machine.run("systemctl", "start", *PROJECTORS)
        pages = [f"http://127.0.0.1:{port}/readyz" for port in (9108, 9113)]
        await_until(lambda: self.machine.run("curl", "-fsS", *pages), "two ready projectors")

    def roll(self) -> None:
        for unit in PROJECTORS:
            self.machine.run("systemctl", "restart", unit)
            self._check_result(unit)
        self.start()

    def kill(self) -> None:
        before = self.machine.shown(PROJECTORS[0], "MainPID")
        self.machine.run("systemctl", "kill", "-s", "KILL", PROJECTORS[0])
        self.await_new_process(before, 60)

    def await_new_process(self, before: str, within: float) -> float:
        unit = PROJECTORS[0]
        took = await_until(
            lambda: (
                self.machine.shown(unit, "MainPID") not in (before, "0")
                and self.machine.shown(unit, "ActiveState") == "active"
            ),
            "a new process",
            within,
        )
        self.start()
        return took

    def stop(self) -> None:
        self.machine.run("systemctl", "stop", *PROJECTORS)
        for unit in PROJECTORS:
            self._check_result(unit)

    def _check_result(self, unit: str) -> None:
        result = self.machine.shown(unit, "Result")
        if result != "success":
            raise DeploymentFailed(
                f"{unit} ended with {result}: {self.machine.run('journalctl', '-u', unit, '-n', '20')}"
            )

    def restart_database(self) -> None:
        self._servers.restart_database()

    def restart_search(self) -> None:
        self._servers.restart_search()


def _installed(site: Systemd) -> Figures:
    """By the block of the README, word for word."""
    machine = site.machine
    _, _, rest = (ROOT / "deploy" / "README.md").read_text().partition("```sh systemd\n")
    lines = [line for line in rest.partition("```")[0].splitlines() if not line.startswith("#")]
    for line in lines:
        if line.startswith("systemctl enable"):
            _make_logins(site)
        found = re.search(r"/dev/stdin /etc/outbox/(\S+)", line)
        machine.run("sh", "-ec", line, text=SECRETS[found[1]] if found else None)
    return {"exposure": _exposures(machine), "credentials": _secrets_are_hidden(machine)}


def _make_logins(site: Systemd) -> None:
    execute(site, *(line for line in (ROOT / "deploy/compose/logins.sql").read_text().splitlines() if line[0] != "-"))
    site.operator("index", "create")
    site.machine.run("sh", "-ec", "echo OUTBOX_METRICS_PORT=9113 > /etc/outbox/two.env")


def _exposures(machine: Machine) -> dict[str, float]:
    """What `systemd-analyze security` says of each unit while it runs."""
    found: dict[str, float] = {}
    for unit in ("outbox-projector@all", "outbox-console", "outbox-migrate", "outbox-prune"):
        told = machine.run("systemd-analyze", "security", "--no-pager", unit)
        level = re.search(r"Overall exposure level for \S+: ([\d.]+)", told)
        if level is None or float(level[1]) > EXPOSURE_LIMIT:
            raise DeploymentFailed(f"{unit}: {told[-300:]}; the limit is {EXPOSURE_LIMIT}")
        found[unit] = float(level[1])
    return found


def _secrets_are_hidden(machine: Machine) -> str:
    """No secret in the environment of a process, in its command line or in its unit."""
    for unit in ("outbox-projector@all", "outbox-console"):
        machine.run("systemctl", "is-active", unit)
        pid = machine.shown(unit, "MainPID")
        seen = machine.run("cat", f"/proc/{pid}/environ", f"/proc/{pid}/cmdline") + machine.run(
            "systemctl", "cat", unit
        )
        if "wordloom" in seen or f"/run/credentials/{unit}.service/database_url" not in seen:
            raise DeploymentFailed(f"the secret of {unit} is not where it should be")
    return "files of the unit alone"


def _watched(site: Systemd) -> Figures:
    """A frozen process is noticed by the watchdog (30 s), and ended after the time for a stop at the latest."""
    unit = PROJECTORS[0]
    before = site.machine.shown(unit, "MainPID")
    status = site.machine.shown(unit, "StatusText")
    began = time.monotonic()
    site.machine.run("kill", "-STOP", before)
    site.await_new_process(before, 120)
    told = site.machine.run("journalctl", "-u", unit, "--no-pager")
    if "Watchdog timeout" not in told:
        raise DeploymentFailed(f"{unit} was not ended by the watchdog: {told[-2000:]}")
    return {"watchdog": {"replaced_seconds": round(time.monotonic() - began, 1)}, "status": status}
