"""Knows how much memory a worker may have and may need. Limits nothing."""

from pathlib import Path
from typing import Final

from outbox.facts import Announce, Warned

BASE_BYTES: Final = 100_000_000
# Version 2 of control groups has no name in /proc/self/cgroup.
LIMITS: Final = {"": "memory.max", "memory": "memory/memory.limit_in_bytes"}


def allowed_bytes(root: Path = Path("/")) -> int | None:
    """The limit of this process's control group, of a container or a unit; None without one."""
    found = list[int]()
    try:
        groups = [line.split(":", 2)[1:] for line in (root / "proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return None
    for kind, path in groups:
        file = root / "sys/fs/cgroup" / LIMITS.get(kind, "none")
        # A container sees its own group as the root, whatever its path says.
        for limit in (file, file.parent / path.lstrip("/") / file.name):
            text = limit.read_text().strip() if limit.is_file() else ""
            found += [int(text)] if text.isdigit() else []
    return min(found, default=None)


def warn_of_limit(allowed: int | None, lanes: int, batch_bytes: int, document_bytes: int, announce: Announce) -> None:
    """Before the kernel ends the process without a word: with what the settings allow it may need more."""
    needed = BASE_BYTES + lanes * (4 * batch_bytes + 3 * document_bytes)
    if allowed is not None and allowed < needed:
        message = (
            f"the memory limit is {allowed >> 20} MiB, and these settings may need {needed >> 20} MiB: raise it, or"
            " lower OUTBOX_MAX_DOCUMENT_BYTES, OUTBOX_BATCH_BYTES or OUTBOX_CONCURRENCY"
        )
        announce(Warned("memory.limit", message))
