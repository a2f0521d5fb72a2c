"""What the servers that run on Java share: their options, folders and logging. It knows none of them."""

from __future__ import annotations

import shutil
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict, Unpack

from outbox.embedded.fetching import Report, to_stderr
from outbox.embedded.folders import default_data_dir
from outbox.embedded.java import Java
from outbox.embedded.process import MARK
from outbox.embedded.server import EmbeddedServer

# For development and tests: only the fast compiler, and the serial collector. A start takes 11 s of CPU instead of 24
# (8.3 s of time instead of 13.1), 150 small indexes 16 s instead of 34 (two cores), and the launcher 2.8 s instead of
# 4.2. Benchmarks pass () for Java's defaults.
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = {}
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""


class JavaOptions(TypedDict, total=False):
    port: int | None
    heap: str
    settings: Mapping[str, object] | None
    jvm_options: Sequence[str]
    password: str | None
    data_dir: Path | None
    report: Report


class JavaServer(EmbeddedServer):
    """`settings` are added to its own."""

    heap = "512m"
    ready_seconds = 180.0
    folders: tuple[str, ...] = ("config", "data", "tmp")
    log_pattern: str

    def __init__(self, folder: Path, **options: Unpack[JavaOptions]) -> None:
        super().__init__(folder, port=options.get("port"))
        self.settings = dict(options.get("settings") or {})
        self.heap = options.get("heap") or self.heap
        self.password = options.get("password")
        self._jvm_options = options.get("jvm_options", QUICK_START)
        self._shared = options.get("data_dir") or default_data_dir()
        self._report = options.get("report", to_stderr)

    @property
    def _config(self) -> Path:
        return self.folder / "config"

    @cached_property
    def _found(self) -> tuple[Any, Java]:
        return self._find()

    @abstractmethod
    def _find(self) -> tuple[Any, Java]:
        """Find or fetch its programs and a Java; at the first start only."""

    @abstractmethod
    def _files(self) -> dict[str, str]:
        """Its files in `config`, by their names."""

    def _prepare(self) -> None:
        _ = self._found  # before anything is written
        # A temporary folder of its own: a killed JVM leaves its files there.
        shutil.rmtree(self.folder / "tmp", ignore_errors=True)
        for name in self.folders:
            self._account.give_folder(self.folder / name)
        for name, text in {"log4j2.properties": LOGGING.format(self.log_pattern), **self._files()}.items():
            self._account.give_file(self._config / name, text)

    def _java_options(self, heap: str) -> list[str]:
        own = [f"-Xmx{heap}", f"{MARK}{self.folder}", "-XX:+ExitOnOutOfMemoryError"]
        return [*own, f"-Djava.io.tmpdir={self.folder / 'tmp'}", *self._jvm_options]
