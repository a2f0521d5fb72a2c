"""Builds the command lines of the search servers, which start differently. It runs none of them."""

from __future__ import annotations

import signal
from pathlib import Path

from outbox.embedded.find_server import Distribution
from outbox.embedded.java import Java
from outbox.embedded.process import MARK, Command

# For development and tests: only the fast compiler, and the serial collector. A start takes 11 s of CPU instead of 24
# (8.3 s of time instead of 13.1), 150 small indexes 16 s instead of 34 (two cores), and the launcher 2.8 s instead of
# 4.2. Benchmarks pass () for Java's defaults.
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def server_command(distribution: Distribution, java: Java, folder: Path) -> Command:
    """The command of the server in this folder. Its working directory must be the distribution's root."""
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
    """The command of the keystore tool, which reads its secret from standard input."""
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
    # A temporary folder of its own: a killed JVM leaves its files there, and the next start removes them.
    return {**java.env, "ES_TMPDIR": str(folder / "tmp")}
