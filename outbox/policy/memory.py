"""How much of a batch travels at once, so that a lane stays within what is promised of its memory."""

from typing import Final

BATCH_BYTES: Final = 8_388_608
INLINE_BYTES: Final = 65_536


def inline_bytes(batch_bytes: int, events: int) -> int:
    """Below this size a document comes along when so many are read at once; larger ones are read by portions. A flat
    64 KiB let a claim of 500 bring 32 MB, and one of 10,000 would have brought 640."""
    return min(INLINE_BYTES, batch_bytes // max(1, events))
