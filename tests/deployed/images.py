"""Owns the images of a run: pulled under the names that the shipped files use, or stand-ins built under these names."""

import os
import shutil
from hashlib import sha256
from pathlib import Path

from outbox.embedded.fetching import SYSTEM_TRUST, to_stderr, user_home
from outbox.embedded.folders import default_data_dir
from outbox.embedded.server_account import Account
from outbox.embedded.supplies import fetched_distribution, find_kafka
from tests.deployed.debian import require_root, root_archive
from tests.deployed.engine import Engine
from tests.deployed.shell import DeploymentFailed, MissingSoftware, say

STANDINS = Path(__file__).parent / "standins"
# Each with its Dockerfile and the release of Debian that it begins with.
BUILT = {
    "python:3.13.5-slim-bookworm": ("python", "trixie"),
    "postgres:18.1": ("postgres", "sid"),
    "postgres:18": ("postgres", "sid"),
    "elasticsearch:8.14.1": ("elasticsearch", "trixie"),
    "prom/prometheus:v3.5.0": ("prometheus", "sid"),
    "prom/alertmanager:v0.28.1": ("prometheus", "sid"),
    "apache/kafka:4.1.0": ("kafka", "trixie"),
    "maven:3.9-eclipse-temurin-17": ("maven", "trixie"),
    "outbox-pause:local": ("pause", "trixie"),
}
OURS = ("outbox-pause:local",)  # in no registry
MARK = "outbox.standin"


def provide(engine: Engine, names: tuple[str, ...], only_standins: bool) -> str:
    """Which ones they are: `pulled`, `stand-ins`, or `pulled and stand-ins`."""
    kinds = {_provide(engine, name, only_standins) for name in names}
    return " and ".join(sorted(kinds))


def _provide(engine: Engine, name: str, only_standins: bool) -> str:
    if engine.has_image(name):
        mark = engine.docker("image", "inspect", "-f", f'{{{{index .Config.Labels "{MARK}"}}}}', name).strip()
        if not mark:
            return "pulled"
        if mark == _checksum(name):
            return "stand-ins"
    if not only_standins and name not in OURS and _pulled(engine, name):
        return "pulled"
    _build(engine, name)
    return "stand-ins"


def _pulled(engine: Engine, name: str) -> bool:
    try:
        engine.docker("pull", "-q", name, limit=600)
    except DeploymentFailed as failed:
        say(f"   {name} is not available from a registry: {str(failed).splitlines()[-1]}")
        return False
    return True


def _build(engine: Engine, name: str) -> None:
    stem, suite = BUILT[name]
    base = f"outbox-standin:{suite}"
    if not engine.has_image(base):
        require_root("stand-ins for images")
        engine.docker("import", root_archive(engine.folder, suite), base)
    contexts = [word for key, path in _contexts(engine, stem).items() for word in ("--build-context", f"{key}={path}")]
    say(f"   building a stand-in for {name}")
    label, file = f"{MARK}={_checksum(name)}", STANDINS / f"{stem}.Dockerfile"
    engine.docker("build", "-q", "--label", label, "-t", name, "-f", file, *contexts, STANDINS, limit=1200)


def _checksum(name: str) -> str:
    """Of the files that begin with its name: a stand-in whose files changed is built anew."""
    stem, _ = BUILT[name]
    texts = [path.read_bytes() for path in sorted(STANDINS.glob(f"{stem}*"))]
    return sha256(b"".join(texts)).hexdigest()[:16]


def _contexts(engine: Engine, stem: str) -> dict[str, Path]:
    """Folders that a stand-in copies from."""
    shared = default_data_dir()
    match stem:
        case "maven":
            return {"machine": _java_settings(engine.folder / "machine")}
        case "python":
            return {"machine": _settings(engine.folder / "machine")}
        case "elasticsearch":
            return {"distribution": fetched_distribution(shared, "8", to_stderr).home}
        case "kafka":
            return {"jars": find_kafka(shared, Account.for_servers(), to_stderr)[0]}
    return {}


def _settings(folder: Path) -> Path:
    """Which authorities this machine trusts, and where its pip asks: images install packages as this machine does."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(bundle(), folder / "ca-certificates.crt")
    pip = Path("/etc/pip.conf")
    (folder / "pip.conf").write_text(pip.read_text() if pip.exists() else "")
    return folder


def _java_settings(folder: Path) -> Path:
    """The same for Maven."""
    if not SYSTEM_TRUST.exists():
        raise MissingSoftware(f"{SYSTEM_TRUST}, which authorities Java trusts: install ca-certificates-java")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(SYSTEM_TRUST, folder / "cacerts")
    given = user_home() / ".m2" / "settings.xml"
    (folder / "settings.xml").write_text(given.read_text() if given.exists() else "<settings/>")
    return folder


def bundle() -> Path:
    return Path(os.environ.get("PIP_CERT", "/etc/ssl/certs/ca-certificates.crt"))
