"""Drives one fuzzer by coverage with atheris, for `scripts/fuzz`: hypothesis reads the bytes, atheris chooses them."""

import importlib
import inspect
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

MODULES = sorted(f"tests.unit.fuzz.{file.stem}" for file in Path(__file__).parent.glob("test_*.py"))
LONGEST_BYTES = 4096


def fuzzers(module: ModuleType) -> Iterator[tuple[str, Callable[[bytes], bytes | None]]]:
    """Every hypothesis test. One with parameters of its own cannot be driven, and must not be passed over either."""
    for name, test in inspect.getmembers(module, inspect.isfunction):
        drawn = getattr(test, "hypothesis", None)
        if name.startswith("test_") and drawn is not None:
            if hasattr(test, "pytestmark"):
                raise SystemExit(
                    f"{name} has parameters of pytest; let hypothesis draw them, or go through them inside"
                )
            yield name, drawn.fuzz_one_input


def names() -> list[str]:
    return [f"{module}:{name}" for module in MODULES for name, _ in fuzzers(importlib.import_module(module))]


def seeds() -> str:
    """A folder of bytes to begin with: from nothing atheris tries few bytes, and most tests draw nothing of them."""
    folder = Path("build/fuzz/seeds")
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(17)
    for number in range(64):
        (folder / str(number)).write_bytes(chance.randbytes((64, 256, 1024, LONGEST_BYTES)[number % 4]))
    return str(folder)


def drive(name: str, corpus: str, options: list[str]) -> None:
    atheris: Any = importlib.import_module("atheris")
    module, _, test = name.partition(":")
    with atheris.instrument_imports(include=["outbox"]):
        found = dict(fuzzers(importlib.import_module(module)))
    tried: Counter[str] = Counter()

    def one(data: bytes) -> None:
        """Too few bytes, or what a filter or an `assume` sorts out, never get to the end of the test: counted apart."""
        tried["whole"] += found[test](data) is not None
        tried["all"] += 1
        if tried["all"] % 100 == 0:
            print(f"inputs: {tried['whole']} of {tried['all']} were whole", file=sys.stderr)

    # Inputs are not made smaller: the smaller, the fewer are whole.
    sizes = [f"-max_len={LONGEST_BYTES}", "-len_control=0", "-reduce_inputs=0"]
    atheris.Setup([sys.argv[0], corpus, seeds(), *sizes, *options], one)
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(names()))
    else:
        drive(sys.argv[1], sys.argv[2], sys.argv[3:])
