"""Owns the list of commands, in the order of the help page; each file declares its own, imported when it runs.

Usage errors repeat what was typed, and none of it may steer the terminal.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import cleandoc
from textwrap import indent
from typing import Annotated, Any, Final, NamedTuple

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from outbox import __version__
from outbox.cli import visible

WRONG_CALL: Any = typer.BadParameter.__mro__[2]  # the base of all usage errors; it has no public name


@contextmanager
def quoted_as_text() -> Iterator[None]:
    """typer escapes control characters by itself, but lets direction marks through."""
    try:
        yield
    except WRONG_CALL as error:
        error.message = visible(error.message, keep="\n")
        raise


class PlainCommand(TyperCommand):
    make_context = quoted_as_text()(TyperCommand.make_context)


class MenuEntry(NamedTuple):
    """One line of the menu."""

    topic: str  # the module beside this one that declares the command
    name: str
    panel: str
    function: str = ""  # what declares it, where that is called otherwise

    @property
    def text(self) -> str:
        """The first paragraph of the command's own help, from its source: to import all of them takes 0.08 s of CPU."""
        source = (pkgutil.get_data("outbox.cli", f"{self.topic}.py") or b"").decode()
        name = self.function or self.name.replace("-", "_")
        declared = rf'^def {name}_?\(.*?"""|^{name} = typer\.Typer\(.*?help="'
        found = re.search(rf'(?:{declared})(.+?)(?:"|\n\n)', source, re.MULTILINE | re.DOTALL)
        return " ".join(found[1].split()) if found else ""


class LaterCommand(TyperCommand):
    """All commands together take 0.08 s of CPU to import and declare, one takes 0.01 s."""

    def __init__(self, entry: MenuEntry) -> None:
        super().__init__(entry.name, rich_help_panel=entry.panel)
        self._entry: Final = entry

    def declared(self) -> Any:
        """The command as its own file declares it: a command, or a group with commands of its own."""
        topic = import_module(f"outbox.cli.{self._entry.topic}")
        return typer.main.get_group(topic.commands).commands[self._entry.name]

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """From here on typer deals with the declared command: options, help and completion are that command's."""
        return self.declared().make_context(*args, **kwargs)

    def get_short_help_str(self, limit: int = 45) -> str:
        """Shells show it when they complete the command."""
        self.help = self._entry.text
        return super().get_short_help_str(limit)


ENTRIES = (
    MenuEntry("up", "up", "Run"),
    MenuEntry("run", "run", "Run"),
    MenuEntry("console", "console", "Run", "serve"),
    MenuEntry("status", "status", "Inspect"),
    MenuEntry("status", "wait", "Inspect"),
    MenuEntry("events", "list", "Inspect"),
    MenuEntry("events", "show", "Inspect"),
    MenuEntry("status", "stats", "Inspect"),
    MenuEntry("audit", "audit", "Inspect"),
    MenuEntry("events", "explain-error", "Inspect"),
    MenuEntry("doctor", "doctor", "Inspect"),
    MenuEntry("replay", "replay", "Act"),
    MenuEntry("replay", "replays", "Act"),
    MenuEntry("discard", "discard", "Act"),
    MenuEntry("discard", "flush", "Act"),
    MenuEntry("prune", "prune", "Act"),
    MenuEntry("pauses", "pause", "Act"),
    MenuEntry("pauses", "resume", "Act"),
    MenuEntry("migrate", "migrate", "Install", "apply"),
    MenuEntry("doctor", "index", "Install"),
    MenuEntry("kafka", "kafka", "Install"),
    MenuEntry("verify", "verify", "Index"),
    MenuEntry("verify", "repair", "Index"),
    MenuEntry("refresh", "refresh", "Index"),
    MenuEntry("refresh", "backfill", "Index"),
    MenuEntry("rebuild", "rebuild", "Index"),
    MenuEntry("attach", "attach", "Install"),
    MenuEntry("attach", "detach", "Install"),
    MenuEntry("types", "types", "Install", "show"),
    MenuEntry("webhook", "webhook", "Install"),
    MenuEntry("config", "config", "Install"),
)


class Menu(TyperGroup):
    make_context = quoted_as_text()(TyperGroup.make_context)
    invoke = quoted_as_text()(TyperGroup.invoke)

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for entry in ENTRIES:
            self.add_command(LaterCommand(entry))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """As plain text: boxes need rich, which takes 0.15 s of CPU to import."""
        self.format_usage(ctx, formatter)
        formatter.write(f"\n{indent(cleandoc(self.help or ''), '  ')}\n")
        self.format_options(ctx, formatter)
        for panel in dict.fromkeys(entry.panel for entry in ENTRIES):
            with formatter.section(panel):
                formatter.write_dl([(entry.name, entry.text) for entry in ENTRIES if entry.panel == panel])

    def format_options(self, ctx: Any, formatter: Any) -> None:
        told = [record for option in self.get_params(ctx) if (record := option.get_help_record(ctx)) is not None]
        with formatter.section("Options"):
            formatter.write_dl(told)


app = typer.Typer(
    cls=Menu,
    no_args_is_help=True,
    add_completion=True,
    # typer's own tracebacks print local variables, and with them passwords.
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="""Project committed rows of PostgreSQL into Elasticsearch or OpenSearch, at least once, convergent by version.

    Settings come from the environment: `outbox config print` shows them, docs/configuration.md explains them.
    Data goes to stdout, all else to stderr; --json is on every command that prints data.
    Exit codes: 0 done, 1 failed, 2 usage, 3 partly done, 75 a server is down, 78 configuration, 130/143 by signal.

    Examples:
      outbox up                        # everything on sample data, nothing to install
      outbox migrate && outbox run     # the projector on your own database
      outbox status --watch
    """,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"outbox {__version__}")
        raise typer.Exit


@app.callback()
def outbox(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    pass
