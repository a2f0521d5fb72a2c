"""Owns commands that are imported when they run; the help page of all commands needs a name and a line of each."""

from __future__ import annotations

from importlib import import_module
from inspect import cleandoc
from textwrap import indent
from typing import Any, Final, NamedTuple

import typer.main
from typer.core import TyperCommand

from outbox.cli.usage import PlainGroup


class Entry(NamedTuple):
    """One line of the menu. `text` is the first paragraph of the command's own help; a unit test compares them."""

    topic: str  # the module beside this one that declares the command
    name: str
    panel: str
    text: str


class LaterCommand(TyperCommand):
    """All commands together take 0.08 s of CPU to import and declare, one takes 0.01 s."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry.name, help=entry.text, rich_help_panel=entry.panel)
        self._entry: Final = entry

    def declared(self) -> Any:
        """The command as its own file declares it: a command, or a group with commands of its own."""
        topic = import_module(f"outbox.cli.{self._entry.topic}")
        return typer.main.get_group(topic.commands).commands[self._entry.name]

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """From here on typer deals with the declared command: options, help and completion are that command's."""
        return self.declared().make_context(*args, **kwargs)


class Menu(PlainGroup):
    entries: tuple[Entry, ...] = ()

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for entry in self.entries:
            self.add_command(LaterCommand(entry))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """As plain text: boxes need rich, which takes 0.15 s of CPU to import."""
        self.format_usage(ctx, formatter)
        formatter.write(f"\n{indent(cleandoc(self.help or ''), '  ')}\n")
        self.format_options(ctx, formatter)
        for panel in dict.fromkeys(entry.panel for entry in self.entries):
            with formatter.section(panel):
                formatter.write_dl([(entry.name, entry.text) for entry in self.entries if entry.panel == panel])

    def format_options(self, ctx: Any, formatter: Any) -> None:
        told = [record for option in self.get_params(ctx) if (record := option.get_help_record(ctx)) is not None]
        with formatter.section("Options"):
            formatter.write_dl(told)
