"""What every command uses: how it begins and ends, the services it opens, the options that several take, how it prints.

`main` turns errors into an exit code. Data goes to stdout as a table or JSON, all else to stderr. `policy.inputs` reads
what was typed.
"""

from __future__ import annotations

import contextlib
import functools
import getpass
import inspect
import json as jsonlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from uuid import UUID

import typer

from outbox.errors import OutboxError, UsageError

# Late imports: psycopg and elasticsearch take 0.6 s together, and `outbox --help` needs neither.
# ruff: noqa: PLC0415
if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from outbox.app.desk import open_desk as open_desk
    from outbox.app.doctor import open_doctor as open_doctor
    from outbox.app.doctor import open_index_desk as open_index_desk
    from outbox.app.entity_types import open_types as open_types
    from outbox.app.launch import run_daemon as run_daemon
    from outbox.app.operations import open_operations as open_operations
    from outbox.app.reindex import open_reindexing as open_reindexing
    from outbox.app.up import Up
    from outbox.config import Settings
    from outbox.policy.audit import Actor
    from outbox.policy.inputs import AuditFilter, EventFilter
    from outbox.reindex.joining import Reindexing

EXIT_BUG = 1
# By these libpq changes every session of a process. Which documents a command reads must not depend on its shell.
SESSION_VARIABLES: Final = ("PGOPTIONS", "PGTZ", "PGDATESTYLE", "PGCLIENTENCODING")
T = TypeVar("T")
_LATER: Final = {
    "open_desk": "outbox.app.desk:open_desk",
    "open_doctor": "outbox.app.doctor:open_doctor",
    "open_index_desk": "outbox.app.doctor:open_index_desk",
    "open_operations": "outbox.app.operations:open_operations",
    "open_reindexing": "outbox.app.reindex:open_reindexing",
    "open_types": "outbox.app.entity_types:open_types",
    "run_daemon": "outbox.app.launch:run_daemon",
}


def __getattr__(name: str) -> Any:
    """What commands open and run, imported when they ask for it."""
    if name in _LATER:
        return resolve_name(_LATER[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    """`outbox`, and `python -m outbox`."""
    from outbox.cli.menu import app

    as_program(lambda: app(prog_name="outbox"))


def as_program(command: Callable[[], object]) -> None:
    """What a shell or a container starts. SIGTERM unwinds it, so that its leases are free at once; without a handler it
    would not even end the first process of a container."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    guarded(command)


def guarded(command: Callable[[], object]) -> None:
    """Run a command and leave with its code: the one place where an error becomes an exit code."""
    for name in SESSION_VARIABLES:
        os.environ.pop(name, None)
    try:
        command()
    except OutboxError as error:
        note(f"outbox: {error.message}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as bug:
        note(_confession(bug))
        sys.exit(EXIT_BUG)


def _confession(bug: Exception) -> str:
    """Where it happened, without the values: a traceback with locals would show secrets."""
    from outbox.policy.redact import redact_dsn

    frames = "".join(traceback.format_tb(bug.__traceback__))
    message = redact_dsn(f"{type(bug).__name__}: {bug}")[:1000]
    return f"{frames}outbox: this is a bug of ours, please report it with the lines above. {message}"


class ExtraMissing(OutboxError):
    """A part of this program is not installed. Run `pip install 'outbox-projector[embedded]'` for `outbox up`; or
    give DATABASE_URL and ELASTIC_URL and use `outbox migrate`, `outbox index create` and `outbox run`."""

    exit_code = 78


class ConsoleMissing(OutboxError):
    """The console is not installed. Run `pip install 'outbox-projector[console]'`."""

    exit_code = 78


def settings(*, require_database: bool = True, **flags: object) -> Settings:
    """The settings, flags first (named by their variable); all problems at once."""
    from outbox.config import load_settings

    return load_settings(flags=flags, require_database=require_database)


def open_up(rate: float, product: str, say: Callable[[str], None], *, with_kafka: bool = False) -> Up:
    """Not started yet; servers, projector and sample end when it is left."""
    chosen = settings(require_database=False)
    try:
        from outbox.app.up import Up
    except ModuleNotFoundError as missing:
        raise ExtraMissing(f"the module {missing.name}") from missing
    return Up(chosen, rate, product, say, with_kafka)


def run_console(chosen: Settings, tell: Callable[[str], None]) -> None:
    try:
        from outbox.app.console import run_console
    except ModuleNotFoundError as missing:
        raise ConsoleMissing(f"the module {missing.name}") from missing
    run_console(chosen, tell)


def console_token(name: str, role: str) -> tuple[str, str]:
    """A new token, and its line for the file."""
    from outbox.web.auth import Role, line_for, new_token

    token = new_token()
    try:
        return token, line_for(name, Role(role), token)
    except ValueError as wrong:
        raise UsageError(str(wrong)) from wrong


def spread_over(desk: Reindexing, processes: int | None, engine: str, master: str | None) -> None:
    """What a person says about the processes of a long job."""
    from outbox.reindex.parallel import Spread

    desk.parallel.spread = Spread(processes, engine, master)
    desk.parallel.spread.check()
    desk.parallel.engine_of(desk.parallel.spread, 1)  # raises where it is not installed, before anything starts


def person() -> str:
    """Who sits at the shell, where nobody said --by."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "cli"


def actor(by: str) -> Actor:
    """Who acts, by this command."""
    from outbox.policy.audit import Source
    from outbox.policy.inputs import actor

    return actor(by, Source.CLI)


def option(flags: str, text: str, metavar: str | None = None, **more: Any) -> Any:
    """An option that several commands have, in its type; `flags` are parted by blanks."""
    return typer.Option(*flags.split(), help=text, metavar=metavar, **more)


def flag(default: Any, flags: str, text: str, metavar: str | None = None, **more: Any) -> Any:
    """An option of one command, as the default of its parameter."""
    return typer.Option(default, *flags.split(), help=text, metavar=metavar, **more)


Processes = Annotated[int | None, option("--parallel", "Processes at once, which share --rate; else by cores.", "N")]
Engine = Annotated[str, option("--engine", "local: processes of this machine; spark: Apache Spark's.", "NAME")]
Master = Annotated[str | None, option("--master", "With --engine spark: its master; left out: this machine.", "URL")]
By = Annotated[str, option("--by", "Your name, for the audit log.", "NAME")]
_LOGIN: Final = {"default_factory": getpass.getuser, "show_default": "your login name"}
ByLogin = Annotated[str, option("--by", "Your name, for the audit log.", "NAME", **_LOGIN)]
ByShell = Annotated[str | None, option("--by", "Who does this; left out: the user at the shell.")]
Why = Annotated[str, option("--reason", "Why, for the audit.")]
Reason = Annotated[str, option("--reason", "Why, for the audit log.", "TEXT")]

Command = Callable[..., None]
Raw = dict[str, Any]  # the filter's values as they were typed, by the names of its fields


def filters_events(*names: str) -> Callable[[Command], Command]:
    """The command's parameter `raw` becomes the options of the event filter, or some of them."""
    from outbox.policy.inputs import EventFilter

    options = _options("Filter (all that are given must match)", EventFilter)
    return lambda command: _with({name: options[name] for name in names or options}, command)


def filters_audit(command: Command) -> Command:
    """The same for the audit filter."""
    from outbox.policy.inputs import AuditFilter

    return _with(_options("Filter (all must match)", AuditFilter), command)


def _options(panel: str, kind: type[EventFilter | AuditFilter]) -> dict[str, Any]:
    def made(name: str, text: str, metavar: str) -> Any:
        flags = f"--{_flag(name)} -t" if name == "entity_type" else f"--{_flag(name)}"
        given = option(flags, text, metavar, rich_help_panel=panel, show_default=False)
        type_: Any = list[str] | None if name == "ids" else str | None
        return Annotated[type_, given]

    return {each.name: made(each.name, each.metadata["text"], each.metadata["metavar"]) for each in fields(kind)}


def _with(options: Mapping[str, Any], command: Command) -> Command:
    kind = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(name, kind, default=None, annotation=option) for name, option in options.items()]
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        parameters += added if parameter.name == "raw" else [parameter.replace(kind=kind)]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        command(raw={name: given.pop(name) for name in options}, **given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def event_filter(raw: Raw) -> EventFilter:
    """All problems at once, named by their flags."""
    from outbox.policy.inputs import read_event_filter

    return _by_flags(lambda: read_event_filter(raw, datetime.now(UTC)))


def audit_filter(raw: Raw) -> AuditFilter:
    from outbox.policy.inputs import read_audit_filter

    return _by_flags(lambda: read_audit_filter(raw, datetime.now(UTC)))


def _by_flags(read: Callable[[], T]) -> T:
    from outbox.policy.inputs import BadRequest

    try:
        return read()
    except BadRequest as wrong:
        problems = "; ".join(f"--{_flag(field)}: {what}" for field, what in wrong.problems)
        raise UsageError(problems) from wrong


def _flag(field: str) -> str:
    return "id" if field == "ids" else field.replace("_", "-")


# Off a terminal nothing is folded or cut: the reader is a program or a file.
_UNFOLDED = 4000
LONGEST_CELL = 100  # of a list: an error may have 2 KB

Json = Annotated[bool, option("--json", "Print JSON instead of a table.", show_default=False)]
Yes = Annotated[bool, option("--yes -y", "Do not ask. Needed off a terminal.", show_default=False)]


def printer(*, stderr: bool = False) -> Console:
    from rich.console import Console  # 0.06 s, and not needed for --json

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, soft_wrap=True, width=None if stream.isatty() else _UNFOLDED)


def note(text: str) -> None:
    """A remark for people; never data."""
    print(visible(text, keep="\n\t"), file=sys.stderr)


def line(text: str = "") -> None:
    """One line of data."""
    print(visible(text, keep="\n\t"))


_STEERING: Final = {  # a terminal, or the eye
    code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}


def as_json(value: Any, *, compact: bool = False) -> None:
    """One JSON document. A payload given as `orjson.Fragment` keeps every digit that the producer wrote."""
    # JSON escapes controls below U+0020 alone; in strings, where the others can stand, their escape means the same.
    sys.stdout.write(_dumped(value, compact=compact).translate(_STEERING) + "\n")
    sys.stdout.flush()


def _dumped(value: Any, *, compact: bool) -> str:
    import orjson

    option = 0 if compact else orjson.OPT_INDENT_2
    option |= orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
    return orjson.dumps(value, default=_plain, option=option).decode()


def answer(record: Any, told: str | Callable[[], None] = "", *, json: bool) -> None:
    """What a command found or did: as JSON, as one line, as `told` prints it, or the record itself as tables."""
    if json:
        as_json(record)
    elif callable(told):
        told()
    elif told:
        line(told)
    else:
        tables(record)


def tables(record: Any, heading: str = "") -> None:
    show(picture(record, heading))


def picture(record: Any, heading: str = "") -> RenderableType:
    """What has a JSON form, for people: its facts in two columns, each list of objects as a table under its name."""
    from rich.console import Group

    return Group(*_pictures(_read(record), heading))


def _read(record: Any) -> Any:
    """Its JSON form, with every digit of its numbers."""
    return jsonlib.loads(_dumped(record, compact=True), parse_int=str, parse_float=str)


def _pictures(found: Any, heading: str = "") -> Iterator[RenderableType]:
    from rich.text import Text

    if heading:
        yield Text(visible(heading, keep="\n"), style="bold")
    if isinstance(found, list):
        columns = list(dict.fromkeys(name for row in found for name in row))
        yield made_table(columns, [[_told(name, row.get(name)) for name in columns] for row in found])
        return
    facts = {name: _told(name, value) for name, value in found.items() if not _is_inner(value)}
    yield made_table(("", ""), [(name, value) for name, value in facts.items() if value not in (None, "")])
    for name, value in found.items():
        if name not in facts and (any(value.values()) if isinstance(value, dict) else value):
            yield from _pictures(value, f"\n{name}")


def _is_inner(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _told(name: str, value: Any) -> Any:
    """A number with its unit, a time to the second: nobody reads 13482.113 seconds at night."""
    from outbox.ops.status import age, size

    with contextlib.suppress(TypeError, ValueError):
        if name.endswith("seconds"):
            return age(float(value))
        if name.endswith("_bytes"):
            return size(int(value))
        if name.endswith("_ms"):
            return f"{int(value):,} ms"
        if name == "rate":
            return f"{float(value):,.1f}"
        if name.endswith("_at") or name in ("at", "hour", "since", "until", "before", "oldest", "newest"):
            return shown(datetime.fromisoformat(value))
    return _cell(value)


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return ", ".join(str(_cell(each)) for each in value)
    return ", ".join(f"{name} {_cell(each)}" for name, each in value.items()) if isinstance(value, dict) else value


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (tuple, set, frozenset)):
        return list(value)
    if isinstance(value, (Path, UUID)):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def json_object(file: Path | None, flag: str) -> dict[str, Any] | None:
    """What a file holds that an option names."""
    if file is None:
        return None
    try:
        found = jsonlib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as wrong:
        raise UsageError(f"{flag}: {file} cannot be read as JSON ({type(wrong).__name__})") from wrong
    if not isinstance(found, dict):
        raise UsageError(f"{flag}: {file} holds no JSON object")
    return found


def raw_json(text: bytes | None) -> Any:
    """JSON that goes into other JSON as it stands."""
    import orjson

    return None if text is None else orjson.Fragment(text)


def listed(record: Mapping[str, Any], columns: Sequence[str], empty: str, *, json: bool) -> None:
    """One page of a list, which comes first in its record: as JSON, or some columns of it and how to go on."""
    if json:
        as_json(record)
        return
    rows = _read(next(iter(record.values())))
    table(columns, [[shown(_told(name, row[name]))[:LONGEST_CELL] for name in columns] for row in rows], empty=empty)
    for name, text in (("remark", "note: {}"), ("next", "more: --after {}")):
        if record.get(name):
            note(text.format(record[name]))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str = "") -> None:
    """`empty` is said where there is no row: a bare header leaves people wondering."""
    rows = list(rows)
    show(made_table(columns, rows))
    if empty and not rows:
        note(empty)


def show(picture: RenderableType) -> None:
    """Something of rich's on stdout; off a terminal without the blanks that fill up its columns."""
    out = printer()
    if out.is_terminal:
        out.print(picture)
        return
    with out.capture() as captured:
        out.print(picture)
    for each in captured.get().splitlines():
        print(each.rstrip())


def made_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Aligned columns without frames, so that they can be cut and grepped."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        # Text, not markup: a value may hold brackets.
        made.add_row(*(cell if isinstance(cell, Text) else Text(shown(cell)) for cell in row))
    return made


def shown(value: object) -> str:
    """A value in a cell: UTC to the second, nothing as a dash, control characters made visible."""
    if value is None or value == "":
        return "-"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return visible(str(value))


def visible(text: str, keep: str = "") -> str:
    """Nothing from a row, or from whoever called, may steer the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def can_ask() -> bool:
    """Whether someone is at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is taken away; where nobody can be asked, `--yes` must have been said."""
    if yes:
        return
    if not can_ask():
        raise UsageError(f"{question} There is no terminal to ask on: give --yes.")
    if not typer.confirm(question, err=True):
        raise typer.Abort
