"""How a daemon is launched: its pages listen before its parts are joined, and a stop before that joins nothing."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from outbox.app import daemon
from outbox.app.launch import run_daemon
from outbox.config import load_settings
from outbox.daemon.shutdown import Stop
from tests.fixtures.processes import find_free_port, http_get


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    def launched(stop: Stop, then: Callable[[str], object]) -> bool:
        port = find_free_port()
        environ = {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", "OUTBOX_METRICS_PORT": str(port)}

        def project(*_: Any, **__: Any) -> bool:
            then(f"http://127.0.0.1:{port}")
            return False

        monkeypatch.setattr(daemon, "project", project)
        return run_daemon(load_settings(environ), stop=stop)

    return launched


def test_the_pages_answer_before_anything_is_joined(launch: Callable[..., bool]) -> None:
    found: list[tuple[int, str]] = []
    assert not launch(Stop(), lambda url: found.extend(http_get(url + path) for path in ("/healthz", "/readyz")))
    (alive, loops), (ready, _) = found
    assert (alive, ready) == (200, 503)
    assert list(json.loads(loops)["loops"]) == ["start"]


def test_a_stop_during_the_imports_joins_nothing_and_is_clean(launch: Callable[..., bool]) -> None:
    stop, joined = Stop(), list[str]()
    stop.request("SIGTERM")
    assert launch(stop, joined.append)
    assert joined == []
