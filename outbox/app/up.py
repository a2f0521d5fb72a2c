"""Joins everything that `outbox up` runs on one machine: servers, schema, index, sample; projector, console."""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from outbox.app.desk import QueueDesk, open_desk
from outbox.app.doctor import open_index_desk
from outbox.app.up_kafka import capture_log, check_kafka, stream_settings
from outbox.config import Settings, load_settings
from outbox.embedded import EmbeddedStack, EmbeddedStream
from outbox.embedded.connect_api import USER as CONNECT_USER
from outbox.embedded.folders import make_folder
from outbox.embedded.postgres import for_people
from outbox.embedded.process import Command, SupervisedProcess, await_free, claim_port, free_port, tail
from outbox.embedded.products import ELASTICSEARCH, release_of
from outbox.embedded.safe_files import new_file
from outbox.embedded.sample import SampleProducer
from outbox.embedded.server_account import Account
from outbox.errors import OutboxError
from outbox.ops.status import QueueStatus
from outbox.policy.redact import redact_dsn
from outbox.sink.client import Reply
from outbox.sink.client import connect as connect_elastic
from outbox.sink.index import IndexExists
from outbox.store.schema import migrate


class PartEnded(OutboxError):
    """A part of `outbox up` ended, and the rest was stopped. The end of its log says why."""


@dataclass(frozen=True, slots=True)
class Part:
    """`outbox COMMAND` as a process of its own. It ends when this process does, kill -9 included."""

    name: str
    log: Path
    process: SupervisedProcess

    @classmethod
    def started(cls, name: str, command: list[str], log: Path, env: Mapping[str, str]) -> Self:
        make_folder(log.parent)
        argv = [sys.executable, "-m", "outbox", *command]
        account = Account(os.geteuid(), os.getegid())
        return cls(name, log, SupervisedProcess(Command(argv, Path.cwd(), dict(env), signal.SIGTERM), account, log))

    def check(self) -> None:
        if not self.process.running:
            raise PartEnded(f"{self.name}, log {self.log}\n{tail(self.log)}")


METRICS: Final = "OUTBOX_METRICS_PORT"
CONSOLE: Final = "OUTBOX_CONSOLE_PORT"
Say = Callable[[str], None]
# One node holds no copies: with the default of one the index would stay yellow.
_INDEX_SETTINGS = {"number_of_shards": 1, "number_of_replicas": 0}


@dataclass(frozen=True, slots=True)
class Addresses:
    """What people need to know to try it. The database's password stands in `database_url_file` only."""

    database_url: str
    database_url_file: str
    elastic_url: str
    index: str
    metrics_url: str
    console_url: str
    logs: Mapping[str, str]
    sample: bool
    search_server: str  # its product, if it was started here
    kafka: str  # for `bootstrap.servers`; empty unless the events come from Kafka
    connect_url: str
    connect_username: str
    connect_password_file: str


@dataclass(slots=True)
class Up:
    """Started in order, stopped in reverse: nothing that is running loses what it stands on."""

    settings: Settings
    rate: float
    product: str  # what to embed: `elasticsearch`, `opensearch`, `opensearch-2`
    say: Say
    with_kafka: bool = False
    _open: ExitStack = field(default_factory=ExitStack)
    _parts: list[Part] = field(default_factory=list)
    _started: dict[str, str] = field(default_factory=dict)  # addresses of the servers that were started here
    _desk: QueueDesk | None = None
    _search_server: str = "search server"
    _stream: EmbeddedStream | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def start(self) -> Addresses:
        if self.with_kafka:
            check_kafka(self.settings)
        self._start_servers()
        self.say("migrating the database")
        migrate.migrate(self.settings.database.direct_dsn, log=self.with_kafka)
        self._create_indexes()
        if self._stream is not None:
            self.say("connecting the event log with Kafka")
            capture_log(self.settings, self._stream)
        self._desk = self._open.enter_context(open_desk(self.settings, application="outbox up"))
        sample = self._prepare_sample()
        ports = usual_ports(self.settings, self._open)
        self._start_parts(ports)
        where = self._where(ports, sample is not None)
        if sample is not None:
            # Last to start and so first to stop: the projector has an end to drain to.
            self._open.callback(sample.stop)
            sample.start(self.rate)
        return where

    def read(self) -> QueueStatus:
        """How it is now. Raises PartEnded when a part has ended by itself."""
        for part in self._parts:
            part.check()
        self._keep_connect()
        assert self._desk is not None, "not started"
        return self._desk.status.read()

    def _keep_connect(self) -> None:
        """One that has ended is started again, and gets its connector: its position is in its folder."""
        if self._stream is not None and not self._stream.connect.running:
            self.say("Kafka Connect has ended: starting it again")
            self._stream.connect.kill()
            self._stream.connect.start()
            capture_log(self.settings, self._stream)

    def listens(self, url: str) -> bool:
        """Whether someone has taken the port of one of our own pages."""
        return not url or not await_free(urlsplit(url).port or 0, 0)

    def found(self, query: str) -> int:
        """How many documents a search finds; 0 while Elasticsearch does not answer it."""
        elastic = connect_elastic(self.settings.elastic)
        try:
            reply = elastic.call("GET", f"/{self.settings.elastic.index}/_count?q={query}")
        finally:
            elastic.close()
        body: Any = reply.body if isinstance(reply, Reply) and reply.status == 200 else {}
        return int(body.get("count", 0))

    def _start_servers(self) -> None:
        """Given addresses stay as they are; what is not given is started, and its address put into the settings."""
        given = self.settings
        database_url = given.database.dsn if given.database.url is not None else None
        is_given = any(given.source_of(name) != "default" for name in ("ELASTIC_URL", "ELASTIC_CLOUD_ID"))
        elastic_url = given.elastic.urls[0] if is_given else None
        if database_url and elastic_url and not self.with_kafka:
            return
        es_version = given.embedded.es_version if self.product == ELASTICSEARCH.name else self.product
        title = release_of(es_version).product.title
        if not elastic_url:
            self._search_server = title
        wanted = [*([] if elastic_url else [title]), *(["Kafka"] if self.with_kafka else [])]
        what = f"; the first start downloads {' and '.join(wanted)}, which takes minutes" if wanted else ""
        self.say(f"starting the embedded servers{what}")
        stack = EmbeddedStack(
            given.embedded.data_dir,
            database_url=database_url,
            elastic_url=elastic_url,
            es_version=es_version,
            es_home=given.embedded.es_home,
            with_kafka=self.with_kafka,
            report=self.say,
        )
        self._open.enter_context(stack)
        urls = {"DATABASE_URL": (database_url, stack.database_url), "ELASTIC_URL": (elastic_url, stack.elastic_url)}
        self._started = {name: started for name, (had, started) in urls.items() if not had}
        self._stream = stack.stream
        if self._stream is not None:
            self._started |= stream_settings(self._stream)
        self.settings = load_settings(flags=self._started)

    def _create_indexes(self) -> None:
        with open_index_desk(self.settings) as desk:
            for target in desk.targets:
                try:
                    desk.create(target, None, _INDEX_SETTINGS)
                    self.say(f"created the index {target}")
                except IndexExists:
                    self.say(f"the index {target} is there already")

    def _prepare_sample(self) -> SampleProducer | None:
        if self.rate <= 0:
            return None
        sample = SampleProducer(self.settings.database.dsn, self.settings.documents)
        if not sample.prepare():
            self.say("this database has events or a view of its own: no sample is made")
            return None
        return sample

    def _start_parts(self, ports: Mapping[str, int]) -> None:
        env = {**os.environ, **self._started, **{name: str(port) for name, port in ports.items()}}
        commands = {"projector": ["run"]} | ({"console": ["console"]} if CONSOLE in ports else {})
        for name, command in commands.items():
            part = Part.started(name, command, self._folder / f"{name}-{_name_of(ports)}.log", env)
            self._open.callback(part.process.stop)  # SIGTERM: the projector drains within its grace
            self._parts.append(part)

    @property
    def _folder(self) -> Path:
        return self.settings.embedded.data_dir.expanduser() / "up"

    def _where(self, ports: Mapping[str, int], sample: bool) -> Addresses:
        settings = self.settings
        given = settings.database.dsn
        address = for_people(given) if "DATABASE_URL" in self._started else given
        connect = self._stream.connect if self._stream else None
        return Addresses(
            database_url=redact_dsn(address),
            database_url_file=self._keep(f"database-url-{_name_of(ports)}", address),
            elastic_url=settings.elastic.urls[0],
            index=settings.elastic.index,
            metrics_url=_url(settings.http.metrics_host, ports[METRICS]),
            console_url=_url(settings.console.host, ports.get(CONSOLE, 0), "/ops/queue"),
            logs={part.name: str(part.log) for part in self._parts},
            sample=sample,
            search_server=self._search_server,
            kafka=self._stream.kafka.url if self._stream else "",
            connect_url=connect.url if connect else "",
            connect_username=CONNECT_USER if connect else "",
            connect_password_file=self._keep(f"connect-password-{_name_of(ports)}", connect.password or "")
            if connect
            else "",
        )

    def _keep(self, name: str, secret: str) -> str:
        """The path of a file that only this account can read, for as long as this runs."""
        file = self._folder / name
        with os.fdopen(new_file(file), "w", encoding="utf-8") as writing:
            writing.write(secret + "\n")
        self._open.callback(file.unlink, missing_ok=True)
        return str(file)


def usual_ports(settings: Settings, held: ExitStack) -> dict[str, int]:
    """Where our own parts listen, until `held` is closed; the console only where its extra is installed."""
    ports = {METRICS: _port(settings, METRICS, settings.http.metrics_port, held)}
    if find_spec("fastapi") is not None:
        ports[CONSOLE] = _port(settings, CONSOLE, settings.console.port, held) or free_port()
    return ports


def _port(settings: Settings, variable: str, usual: int, held: ExitStack) -> int:
    """The port that was asked for; where nobody asked and the usual one is taken, any free one."""
    if settings.source_of(variable) != "default":
        return usual
    claim = claim_port(usual) if await_free(usual, 0) else None
    if claim is None:
        return free_port()
    held.enter_context(claim)
    return usual


def _name_of(ports: Mapping[str, int]) -> str:
    """Tells the files of two that run at once apart."""
    return str(ports[METRICS] or os.getpid())


def _url(host: str, port: int, path: str = "") -> str:
    return f"http://{host}:{port}{path}" if port else ""
