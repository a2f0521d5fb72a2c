"""The guide's servers without Docker: which one on which port, and what is printed."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from labs import devtest


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """What would have been started; tests/acceptance/test_labs_guide.py tests the real servers."""
    seen: list[tuple[str, str, int]] = []

    def starting(name: str) -> object:
        @contextmanager
        def start(folder: Path, *, port: int) -> Iterator[SimpleNamespace]:
            seen.append((name, folder.name, port))
            yield SimpleNamespace(url=f"http://127.0.0.1:{port}")

        return start

    monkeypatch.setattr(devtest, "EmbeddedElasticsearch", starting("es"))
    monkeypatch.setattr(devtest, "EmbeddedPostgres", starting("db"))
    monkeypatch.setattr(devtest, "prepare", lambda *_: None)
    monkeypatch.setattr(signal, "sigwait", lambda _: signal.SIGINT)
    monkeypatch.setattr(signal, "pthread_sigmask", lambda *_: None)
    return seen


@pytest.mark.parametrize(
    ("arguments", "expected", "said"),
    [
        ([], ("db", "devtest-db-5435", 5435), "postgresql+psycopg://wordloom:wordloom@localhost:5435/wordloom_test"),
        (["15435"], ("db", "devtest-db-15435", 15435), "localhost:15435/wordloom_dev"),
        (["es"], ("es", "devtest-es-9200", 9200), "ELASTIC_URL=http://127.0.0.1:9200"),
        (["es", "19200"], ("es", "devtest-es-19200", 19200), "ELASTIC_URL=http://127.0.0.1:19200"),
    ],
    ids=str,
)
def test_each_server_is_where_the_guide_expects_it(
    served: list[tuple[str, str, int]],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    expected: tuple[str, str, int],
    said: str,
) -> None:
    assert devtest.main(arguments) == 0
    assert served == [expected]
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], ["elastic"], ["es", "here"]], ids=str)
def test_a_word_that_is_no_port_starts_nothing(served: list[tuple[str, str, int]], arguments: list[str]) -> None:
    assert devtest.main(arguments) == 2
    assert served == []
