"""Lets a thread read what comes next while the caller deals with what came before. Reads nothing itself."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def read_ahead(source: Iterator[T]) -> Iterator[Iterator[T]]:
    """What `source` yields, in order, one ahead; its error comes in its place. The thread ends with the block."""
    with ThreadPoolExecutor(1, "read-ahead") as reader:
        yield _items(source, reader)


def _items(source: Iterator[T], reader: ThreadPoolExecutor) -> Iterator[T]:
    coming = reader.submit(next, source, None)
    while (item := coming.result()) is not None:
        coming = reader.submit(next, source, None)
        yield item
