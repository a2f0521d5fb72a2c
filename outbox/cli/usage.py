"""Owns how a wrong call is quoted: usage errors repeat what was typed, and none of it may steer the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from outbox.cli.output import visible

WRONG_CALL: Any = typer.BadParameter.__mro__[2]  # the base of all usage errors; it has no public name


@contextmanager
def quoted_as_text() -> Iterator[None]:
    """typer escapes control characters by itself, but lets direction marks through."""
    try:
        yield
    except WRONG_CALL as error:
        error.message = visible(error.message, keep="\n")
        raise


class PlainGroup(TyperGroup):
    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with quoted_as_text():
            return super().make_context(*args, **kwargs)

    def invoke(self, *args: Any, **kwargs: Any) -> Any:
        with quoted_as_text():
            return super().invoke(*args, **kwargs)


class PlainCommand(TyperCommand):
    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with quoted_as_text():
            return super().make_context(*args, **kwargs)
