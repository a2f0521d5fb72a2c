"""A server that does not become ready: the message says what to do, also when its log says nothing."""

from pathlib import Path

import pytest

from outbox.embedded.errors import EmbeddedServerFailed
from outbox.embedded.process import Command
from outbox.embedded.server import EmbeddedServer


class NeverReady(EmbeddedServer):
    title = "Elasticsearch"
    ready_seconds = 0.0
    running = True
    url = ""

    def _prepare(self) -> None: ...

    def _command(self) -> Command:
        raise NotImplementedError

    def _answers(self) -> bool:
        return False


@pytest.mark.parametrize("log", [None, "", "heap is too small"])
def test_a_server_that_is_not_ready_in_time_shows_its_log_or_says_that_there_is_none(
    tmp_path: Path, log: str | None
) -> None:
    server = NeverReady(tmp_path)
    if log is not None:
        server.log.write_text(log)
    with pytest.raises(EmbeddedServerFailed) as failed:
        server.await_ready()
    assert "not ready after 0 s. A busy machine may need longer" in failed.value.message
    assert failed.value.message.endswith(log or f"(nothing is in its log, {server.log})")
