"""Owns how commands speak: data to stdout as a table or JSON, all else to stderr; it decides no content."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from outbox.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

# Off a terminal nothing is folded or cut: the reader is a program or a file.
_UNFOLDED = 4000

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed off a terminal.", show_default=False)]


def stdout() -> Console:
    return _console(stderr=False)


def stderr() -> Console:
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console  # noqa: PLC0415  (0.06 s, and not needed for --json)

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, soft_wrap=True, width=None if stream.isatty() else _UNFOLDED)


def note(text: str) -> None:
    """A remark for people; never data."""
    print(visible(text, keep="\n\t"), file=sys.stderr)


def line(text: str = "") -> None:
    """One line of data."""
    print(visible(text, keep="\n\t"))


def as_json(value: Any, *, compact: bool = False) -> None:
    """One JSON document. A payload given as `orjson.Fragment` keeps every digit that the producer wrote."""
    import orjson  # noqa: PLC0415

    option = 0 if compact else orjson.OPT_INDENT_2
    option |= orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
    sys.stdout.write(orjson.dumps(value, default=_plain, option=option).decode() + "\n")
    sys.stdout.flush()


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


def raw_json(text: bytes | None) -> Any:
    """JSON that goes into other JSON as it stands."""
    import orjson  # noqa: PLC0415

    return None if text is None else orjson.Fragment(text)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str = "") -> None:
    """`empty` is said where there is no row: a bare header leaves people wondering."""
    rows = list(rows)
    show(made_table(columns, rows))
    if empty and not rows:
        note(empty)


def show(picture: RenderableType) -> None:
    """Something of rich's on stdout; off a terminal without the blanks that fill up its columns."""
    console = stdout()
    if console.is_terminal:
        console.print(picture)
        return
    with console.capture() as captured:
        console.print(picture)
    for each in captured.get().splitlines():
        print(each.rstrip())


def made_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Aligned columns without frames, so that they can be cut and grepped."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

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


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is taken away; where nobody can be asked, `--yes` must have been said."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{question} There is no terminal to ask on: give --yes.")
    if not typer.confirm(question, err=True):
        raise typer.Abort
