"""One consumer, from its joining the group to its end. What it calls back counts only until it is left, and its close
runs beside: a client waits there for answers to its commits, for as long as a coordinator is frozen."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import KafkaError, TopicPartition

from outbox.config import KafkaSettings
from outbox.kafka.connection import open_consumer

T = TypeVar("T")


class Handlers(NamedTuple):
    """What a consumer calls back, in the thread that polls it."""

    assigned: Callable[[Any, list[TopicPartition]], None]
    revoked: Callable[[Any, list[TopicPartition]], None]
    lost: Callable[[Any, list[TopicPartition]], None]
    commit: Callable[[KafkaError | None, list[TopicPartition]], None]
    error: Callable[[KafkaError], None]


class Membership:
    def __init__(self, settings: KafkaSettings, handlers: Handlers, *, client: str) -> None:
        self._left = False
        self._error: Exception | None = None
        self.consumer = open_consumer(
            settings,
            client=client,
            on_error=self._while_current(handlers.error),
            on_commit=self._while_current(handlers.commit),
        )
        self.consumer.subscribe(
            [settings.topic],
            on_assign=self._while_current(handlers.assigned),
            on_revoke=self._while_current(handlers.revoked),
            on_lost=self._while_current(handlers.lost),
        )

    def _while_current(self, handle: Callable[..., None]) -> Callable[..., None]:
        """Nothing may be raised through the client: an error of its own would come out as a KafkaError, which is no
        exception (2.16). No `except Exception` catches that, so the reader's thread ended. A callback that does nothing
        is enough once it is left: the client assigns and unassigns by itself then."""

        def called(*given: Any) -> None:
            if self._left:
                return
            try:
                handle(*given)
            except Exception as error:
                self._error = self._error or error

        return called

    def check(self) -> None:
        """After each poll. Raises what a callback met."""
        if self._error is not None:
            raise self._error

    def leave(self) -> Future[None]:
        """Nothing of it is heard from now on. Done when the group knows, or when nobody answered in time."""
        self._left = True
        return beside(self.consumer.close)


def beside(call: Callable[[], T]) -> Future[T]:
    """In a thread for a call without a time limit. The process does not wait for it at its end."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="stream-beside", daemon=True).start()
    return answer
