"""What `outbox up --kafka` refuses before it starts anything."""

import pytest

from outbox.app import up_kafka
from outbox.app.up_kafka import check_kafka
from outbox.config import load_settings
from outbox.errors import KafkaClientMissing, UsageError


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up_kafka, "find_spec", lambda _: None)
    with pytest.raises(KafkaClientMissing, match=r"pip install 'outbox-projector\[kafka\]'"):
        check_kafka(load_settings(require_database=False))


def test_a_kafka_of_somebody_else_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    check_kafka(load_settings(require_database=False))
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "kafka-1:9092")
    with pytest.raises(UsageError, match="unset KAFKA_BOOTSTRAP_SERVERS"):
        check_kafka(load_settings(require_database=False))
