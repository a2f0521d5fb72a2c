"""Runs Maven to download one archive, through the proxy of the environment, which Maven does not read by itself. It
checks no digest and unpacks nothing.

The proxy's address may contain a password: it is written to a file that only the caller can read, never to arguments or
logs.
"""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import signal
import subprocess
import xml.etree.ElementTree as ET
from contextlib import suppress
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from outbox.embedded.archive_list import Archive
from outbox.embedded.errors import FetchFailed, MavenHasNoJava, MavenMissing, NoSpace, ProxyUnusable
from outbox.embedded.folders import make_folder
from outbox.embedded.java import wheel_java
from outbox.embedded.private import new_file
from outbox.embedded.progress import DownloadMeter, Report
from outbox.embedded.supervisor import follow_parent

# Debian's certificates for Java; the wheel's Java does not use them by itself.
SYSTEM_TRUST = Path("/etc/ssl/certs/java/cacerts")
POLL_SECONDS = 1.0
DISK_FULL = os.strerror(errno.ENOSPC)


def user_home() -> Path:
    """As Java finds it: from the account, not from HOME. In containers the account may have no entry."""
    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        return Path(os.environ.get("HOME", "/"))


def find_maven() -> str:
    """The path of Maven. Raises if there is no Maven, or no Java to run it."""
    program = shutil.which("mvn")
    if program is None:
        raise MavenMissing()
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None and wheel_java() is None:
        raise MavenHasNoJava()
    return program


def get_archive(archive: Archive, repository: Path, report: Report) -> Path:
    """The zip in a repository of our own: its size shows the progress, and removing it affects nothing else."""
    program = find_maven()
    make_folder(repository)
    # -C: Maven checks the download against the repository's checksums; a partial download is never renamed.
    argv = [program, "-B", "-q", "-C", "dependency:get", f"-Dartifact={archive.coordinates}", "-Dtransitive=false"]
    settings = repository / "settings.xml"
    argv += [f"-Dmaven.repo.local={repository}", *maven_settings(user_home() / ".m2" / "settings.xml", settings)]
    try:
        _run(argv, archive, repository, report)
    finally:
        settings.unlink(missing_ok=True)
    return archive.zip_in(repository)


def _run(argv: list[str], archive: Archive, repository: Path, report: Report) -> None:
    log = repository / "maven.log"
    with os.fdopen(new_file(log), "w") as output:
        process = subprocess.Popen(
            argv,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,  # Ctrl-C is handled by us
            # If we are killed, it must not go on writing where the next start downloads.
            preexec_fn=follow_parent(signal.SIGKILL),  # noqa: PLW1509
        )
        try:
            _show_progress(process, archive, repository, report)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode or not archive.zip_in(repository).exists():
        why = _why(log)
        raise NoSpace(f"{repository}: the disk is full") if DISK_FULL in why else FetchFailed(why)


def _environment() -> dict[str, str]:
    """Maven needs a Java; any is enough, and the wheel's is used if there is no other."""
    env = dict(os.environ)
    if not env.get("JAVA_HOME") and shutil.which("java") is None and (home := wheel_java()):
        env["JAVA_HOME"] = str(home)
        if SYSTEM_TRUST.exists():
            env["MAVEN_OPTS"] = f"-Djavax.net.ssl.trustStore={SYSTEM_TRUST} {env.get('MAVEN_OPTS', '')}".strip()
    return env


def _show_progress(process: subprocess.Popen[bytes], archive: Archive, repository: Path, report: Report) -> None:
    report(f"downloading {archive.title} with Maven (only once, about {archive.megabytes} MB)")
    meter = DownloadMeter(f"downloading {archive.title}", archive.megabytes, report)
    before = _megabytes(repository)
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(POLL_SECONDS)
                return
            meter.show(_megabytes(repository) - before)
    finally:
        meter.close()


def _megabytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # Maven renames what it has finished
            total += path.stat().st_size
    return total // 1_000_000


def _why(log: Path) -> str:
    errors = [line for line in log.read_text(errors="replace").splitlines() if "ERROR" in line]
    return "\n".join(errors[:3]) or "Maven gave no reason"


NAMESPACE = "http://maven.apache.org/SETTINGS/1.0.0"


def proxy_of_environment() -> SplitResult | None:
    """HTTPS_PROXY, else ALL_PROXY; None for a type that Maven cannot use."""
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        if given := os.environ.get(name):
            found = urlsplit(given if "://" in given else f"http://{given}")
            if not _has_port(found):
                raise ProxyUnusable(f"the port in {name} is not a number")  # never the value: it may contain a password
            return found if found.hostname and found.scheme in ("http", "https") else None
    return None


def _has_port(address: SplitResult) -> bool:
    """The port is a number or missing; `port` raises for anything else."""
    try:
        return address.port is None or address.port > 0
    except ValueError:
        return False


def not_proxied() -> str:
    """NO_PROXY in Maven's form: names separated by bars, a star for any prefix."""
    given = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    hosts = [host.strip() for host in given.split(",") if host.strip()]
    return "|".join(["localhost", "127.*", *(f"*{host}" if host.startswith(".") else host for host in hosts)])


def maven_settings(user_settings: Path, target: Path) -> list[str]:
    """Options that make Maven use the proxy. None without a proxy, or if the user's own settings name one."""
    proxy = proxy_of_environment()
    if proxy is None:
        return []
    tree = _read(user_settings)
    root = tree.getroot()
    if any(_is(element, "proxy") for element in root.iter()):
        return []
    # Maven's own template has an empty list, and two of them are an error.
    proxies = next((element for element in root if _is(element, "proxies")), None)
    _fill(ET.SubElement(root, _name("proxies", root)) if proxies is None else proxies, proxy)
    ET.register_namespace("", NAMESPACE)
    with os.fdopen(new_file(target), "wb") as writing:
        tree.write(writing, encoding="utf-8", xml_declaration=True)
    return ["-s", str(target)]


def _read(settings: Path) -> ET.ElementTree[ET.Element]:
    if not settings.exists():
        return ET.ElementTree(ET.Element(f"{{{NAMESPACE}}}settings"))
    try:
        return ET.parse(settings)  # noqa: S314
    except ET.ParseError as problem:
        raise ProxyUnusable(f"{settings} cannot be read: {problem}") from None


def _is(element: ET.Element, name: str) -> bool:
    return element.tag.rpartition("}")[2] == name


def _name(name: str, parent: ET.Element) -> str:
    """In the namespace of its parent, if that has one."""
    return f"{{{NAMESPACE}}}{name}" if parent.tag.startswith("{") else name


def _fill(proxies: ET.Element, proxy: SplitResult) -> None:
    one = ET.SubElement(proxies, _name("proxy", proxies))
    port = proxy.port or (443 if proxy.scheme == "https" else 80)
    values = {"id": "environment", "active": "true", "protocol": "https", "host": proxy.hostname, "port": str(port)}
    values |= {"username": proxy.username, "password": proxy.password}
    for key, value in values.items():
        if value:
            ET.SubElement(one, _name(key, one)).text = unquote(value)
    ET.SubElement(one, _name("nonProxyHosts", one)).text = not_proxied()
