"""Reads what comes next and works on a few items at once, in threads; answers in order. Knows nothing of the items."""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def read_ahead(source: Iterator[T], work: Callable[[T], R], at_once: int, ending: Event) -> Generator[R, None, None]:
    """What `work` made of each item of `source`, in their order, whichever was done first; one item more is read
    meanwhile. An error comes in its place: nothing behind it is answered, though it may have been done. However this
    ends, no more is begun, and what is at work is waited for; it may look at `ending` in order to be quicker."""

    def read() -> T | None:
        return None if ending.is_set() else next(source, None)

    def step(coming: Future[T | None]) -> tuple[R] | None:
        item = coming.result()
        return None if item is None or ending.is_set() else (work(item),)

    def begin() -> Future[tuple[R] | None]:
        return workers.submit(step, reader.submit(read))

    with ExitStack() as at_end:
        at_end.callback(ending.clear)
        reader = at_end.enter_context(ThreadPoolExecutor(1, "read-ahead"))
        workers = at_end.enter_context(ThreadPoolExecutor(at_once, "at-work"))
        at_end.callback(ending.set)
        begun = deque(begin() for _ in range(at_once + 1))
        while (done := begun.popleft().result()) is not None:
            begun.append(begin())  # before the caller has its turn: nobody waits for what it does
            yield done[0]
