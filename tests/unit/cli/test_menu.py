"""Every command's help: what it does, examples, --json where data is printed."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
import typer.main

from outbox import cli
from outbox.cli.menu import ENTRIES, LaterCommand, app

# `run` and `console` write logs only; the script of `migrate sql` is its data; an export has its own formats.
WITHOUT_JSON = {"run", "console", "migrate sql", "audit export"}


def commands(command: Any = None, path: str = "") -> Iterator[tuple[str, Any]]:
    command = typer.main.get_command(app) if command is None else command
    inner = getattr(command, "commands", {})
    if path and not (inner and not command.invoke_without_command):
        yield path, command
    for name, each in inner.items():
        declared = each.declared() if isinstance(each, LaterCommand) else each
        yield from commands(declared, f"{path} {name}".strip())


ALL = dict(commands())


def test_the_menu_says_what_each_command_says_of_itself() -> None:
    for entry in ENTRIES:
        declared = LaterCommand(entry).declared()
        first_paragraph = " ".join(declared.help.partition("\n\n")[0].split())
        assert (entry.text, entry.panel) == (first_paragraph, declared.rich_help_panel)
        assert not declared.hidden


def test_every_command_that_a_file_declares_is_on_the_menu() -> None:
    topics = {module.name: import_module(f"outbox.cli.{module.name}") for module in iter_modules(cli.__path__)}
    declared = {
        (name, command)
        for name, topic in topics.items()
        if isinstance(getattr(topic, "commands", None), typer.Typer)
        for command in typer.main.get_group(topic.commands).commands
    }
    assert declared == {(entry.topic, entry.name) for entry in ENTRIES}


@pytest.mark.parametrize("name", ALL)
def test_the_help_says_what_it_does_and_shows_an_example(name: str) -> None:
    text = ALL[name].help or ""
    assert text.strip().splitlines()[0].endswith((".", "Ctrl-C stops it.", "problem.")), text
    assert "Examples:" in text
    example = text.partition("Examples:")[2]
    assert "outbox" in example


@pytest.mark.parametrize("name", [name for name in ALL if name not in WITHOUT_JSON])
def test_what_prints_data_can_print_json(name: str) -> None:
    assert any("--json" in parameter.opts for parameter in ALL[name].params)


@pytest.mark.parametrize("name", ALL)
def test_every_option_has_its_help(name: str) -> None:
    for parameter in ALL[name].params:
        assert getattr(parameter, "help", None), f"{name} {parameter.opts}"
