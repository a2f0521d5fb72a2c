"""Asks for the id of the topic: a topic that was deleted and made anew has its name and another id. So it also knows of
a topic that is not there, or that this user may not see. Decides nothing."""

from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from outbox.config import KafkaSettings
from outbox.kafka.connection import ASK_SECONDS, options


class TopicId:
    """`known`: the id by which this worker reads, empty until it was asked for."""

    def __init__(self, settings: KafkaSettings, *, client: str) -> None:
        self._topic = settings.topic
        self._options = options(settings, client=client)
        self._client: AdminClient | None = None
        self._asked: Future[Any] | None = None
        self.known = ""
        self.error: KafkaError | None = None  # of the last answer

    def learn(self, seconds: float) -> str:
        """As it is now. Raises KafkaException or TimeoutError."""
        self.known = str(self._ask().result(max(seconds, 0.1)).topic_id)
        return self.known

    def has_changed(self) -> bool:
        """Asks again and again, and waits for nothing. A topic that is not there now has not changed yet."""
        if self._asked is None:
            self._asked = self._ask()
        if not self._asked.done():
            return False
        answer, self._asked = self._asked, None
        try:
            now, self.error = str(answer.result().topic_id), None
        except TimeoutError:
            return False
        except KafkaException as error:
            self.error = error.args[0]
            return False
        return bool(self.known) and now != self.known

    def _ask(self) -> "Future[Any]":
        if self._client is None:
            self._client = AdminClient(self._options)
        asked = TopicCollection([self._topic])
        found: Future[Any] = self._client.describe_topics(asked, request_timeout=ASK_SECONDS)[self._topic]
        return found
