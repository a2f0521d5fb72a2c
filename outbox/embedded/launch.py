"""Owns the command lines of Elasticsearch 8 and 9, which start differently; it runs none of them."""

from __future__ import annotations

import signal
from pathlib import Path

from outbox.embedded.distribution import Distribution
from outbox.embedded.java import Java
from outbox.embedded.process import MARK, Command

# For people and tests, who start it often and ask little of it: the quick compiler alone, and the plain collector. A
# start costs 11 s of CPU instead of 24 (8.3 s instead of 13.1), and 150 small indexes 16 instead of 34 (two cores).
# Whoever measures it gives () for Java's own choice. Its launcher, which lives for seconds, costs 2.8 s instead of 4.2.
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def server_command(distribution: Distribution, java: Java, folder: Path) -> Command:
    """How to run the server of this folder; its working directory must be the distribution's root."""
    make = _server_of_8 if distribution.major == 8 else _server_of_9
    return make(distribution, java, folder)


def _server_of_8(distribution: Distribution, java: Java, folder: Path) -> Command:
    argv = _tool(distribution, java, folder, name="server", script="elasticsearch", libs="server-cli")
    return Command(argv, distribution.home, _env(java, folder), signal.SIGTERM)


def _server_of_9(distribution: Distribution, java: Java, folder: Path) -> Command:
    launcher = distribution.home / "lib" / "tools" / "server-launcher"
    argv = [java.program, "-Xms4m", "-Xmx64m", *QUICK_START, f"{MARK}{folder}", "-cp", f"{launcher}/*"]
    env = {
        **_env(java, folder),
        "ES_HOME": str(distribution.home),
        "ES_PATH_CONF": str(folder / "config"),
        "ES_DISTRIBUTION_TYPE": "tar",
        "ES_JAVA_TYPE": "bundled",
        "JAVA": java.program,
        "HOSTNAME": "embedded",
    }
    main = "org.elasticsearch.server.launcher.ServerLauncher"
    return Command([*argv, main], distribution.home, env, signal.SIGTERM)


def keystore_command(distribution: Distribution, java: Java, folder: Path, *arguments: str) -> Command:
    """How to run the keystore tool, which wants its secret on standard input."""
    tool = _tool(distribution, java, folder, name="keystore", script="elasticsearch-keystore", libs="keystore-cli")
    return Command([*tool, *arguments], distribution.home, _env(java, folder), signal.SIGTERM)


def _tool(distribution: Distribution, java: Java, folder: Path, *, name: str, script: str, libs: str) -> list[str]:
    home = distribution.home
    return [
        java.program,
        "-Xms16m",
        "-Xmx64m",
        *QUICK_START,
        f"{MARK}{folder}",
        f"-Dcli.name={name}",
        f"-Dcli.script={home}/bin/{script}",
        f"-Dcli.libs=lib/tools/{libs}",
        f"-Des.path.home={home}",
        f"-Des.path.conf={folder / 'config'}",
        "-Des.distribution.type=tar",
        "-cp",
        f"{home}/lib/*:{home}/lib/cli-launcher/*",
        "org.elasticsearch.launcher.CliToolLauncher",
    ]


def _env(java: Java, folder: Path) -> dict[str, str]:
    # A temporary folder of its own: a killed JVM leaves its files there, and the next start clears them.
    return {**java.env, "ES_TMPDIR": str(folder / "tmp")}
