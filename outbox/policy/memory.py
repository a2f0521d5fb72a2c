"""How much of a batch travels at once, so that a lane stays within what is promised of its memory."""

from collections.abc import Sequence
from typing import Final

BATCH_BYTES: Final = 8_388_608
INLINE_BYTES: Final = 65_536
EMPTY_BYTES: Final = 200  # what an action without a body weighs
PAGE_BYTES: Final = 500 * INLINE_BYTES  # of verify and rebuild: a document that is left out costs a request of its own


def inline_bytes(batch_bytes: int, events: int) -> int:
    """Below this size a document comes along when so many are read at once; larger ones are read by portions. A flat
    64 KiB took a process to 1.34 of its promise with documents of 60 KB; this, 0.89 (`bench memory`)."""
    return min(INLINE_BYTES, batch_bytes // max(1, events))


def fits(sizes: Sequence[int], most_bytes: int) -> bool:
    """Whether documents of these sizes may travel together."""
    return sum(sizes) + EMPTY_BYTES * len(sizes) <= most_bytes
