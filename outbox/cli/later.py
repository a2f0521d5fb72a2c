"""Owns commands that are imported when they run; the help page of all commands needs a name and a line of each."""

from __future__ import annotations

from importlib import import_module
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
