"""Drives one fuzzer by coverage with atheris, for `scripts/fuzz`: hypothesis reads the bytes, atheris chooses them."""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

MODULES = sorted(f"tests.unit.fuzz.{file.stem}" for file in Path(__file__).parent.glob("test_*.py"))


def fuzzers(module: ModuleType) -> Iterator[tuple[str, Callable[[bytes], bytes | None]]]:
    """Every hypothesis test without parameters of its own."""
    for name, test in inspect.getmembers(module, inspect.isfunction):
        drawn = getattr(test, "hypothesis", None)
        if name.startswith("test_") and drawn is not None and not hasattr(test, "pytestmark"):
            yield name, drawn.fuzz_one_input


def names() -> list[str]:
    return [f"{module}:{name}" for module in MODULES for name, _ in fuzzers(importlib.import_module(module))]


def drive(name: str, arguments: list[str]) -> None:
    atheris: Any = importlib.import_module("atheris")
    module, _, test = name.partition(":")
    with atheris.instrument_imports(include=["outbox"]):
        found = dict(fuzzers(importlib.import_module(module)))
    atheris.Setup([sys.argv[0], *arguments], found[test])
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(names()))
    else:
        drive(sys.argv[1], sys.argv[2:])
