"""Owns reading the migrations in `sql/`: number, why, statements, undo, checksum; it does not run them."""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PARTS = ("by_type", "by_entity", "notify", "log")
"""The optional parts, in the order in which they are added."""

_NUMBERED = re.compile(r"^(\d{4})_\w+$")


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of `sql/`. `number` is None for an optional part."""

    name: str
    number: int | None
    text: str

    @property
    def checksum(self) -> str:
        """Of the code alone: a better comment is not another migration."""
        return hashlib.sha256(self.code.encode()).hexdigest()

    @property
    def code(self) -> str:
        lines = (line.rstrip() for line in self.text.splitlines() if not line.lstrip().startswith("--"))
        return "\n".join(line for line in lines if line)

    @property
    def why(self) -> str:
        return " ".join(map(str.strip, self._section("Why")))

    @property
    def run(self) -> str:
        """Empty: in one transaction."""
        return " ".join(self._section("Run"))

    @property
    def concurrent(self) -> bool:
        """True where each statement must run by itself, outside a transaction."""
        return self.run == "concurrently"

    @property
    def indexes(self) -> list[str]:
        return re.findall(r"concurrently if not exists (\w+)", self.code)

    @property
    def triggers(self) -> list[str]:
        return re.findall(r"create or replace trigger (\w+)", self.code)

    def undo(self, *, adopted: bool = False) -> str:
        """The statements that take it back by hand; an adopted table has its own where they differ."""
        lines = self._section("Undo (adopted)") if adopted else []
        return "\n".join(lines or self._section("Undo"))

    @property
    def statements(self) -> list[str]:
        """Of a concurrent file, which holds no function bodies."""
        return [part.strip() for part in self.code.split(";") if part.strip()]

    def _section(self, title: str) -> list[str]:
        found: list[str] = []
        inside = False
        for line in self.text.splitlines():
            if not line.startswith("--"):
                break
            head = re.match(r"^-- (Why|Run|Undo \(adopted\)|Undo|Roles)[^:]*:\s*(.*)$", line)
            if head:
                inside = head[1] == title
            words = head[2] if head else line.removeprefix("--   ")
            if inside and words.strip():
                found.append(words.rstrip())
        return found


def _folder() -> Path:
    """`outbox/sql` in a wheel, `sql` beside the package in a checkout."""
    package = Path(__file__).resolve().parents[2]
    shipped = package / "sql"
    return shipped if shipped.is_dir() else package.parent / "sql"


@cache
def numbered() -> tuple[Migration, ...]:
    files = sorted(path for path in _folder().glob("*.sql") if _NUMBERED.match(path.stem))
    return tuple(Migration(path.stem, int(path.stem[:4]), path.read_text("utf-8")) for path in files)


@cache
def part(name: str) -> Migration:
    return Migration(name, None, text("optional", name))


@cache
def text(folder: str, name: str) -> str:
    return (_folder() / folder / f"{name}.sql").read_text("utf-8")


def latest() -> int:
    return max(migration.number or 0 for migration in numbered())
