"""Each process tells its log which names are public: without them a password that is a part of one hides it."""

from collections.abc import Callable

import pytest

from outbox.app import console, daemon
from outbox.config import Settings, load_settings
from outbox.telemetry.beats import Beats

GIVEN = {
    "DATABASE_URL": "postgresql://app:articles@localhost/db",
    "ELASTIC_URL": "http://localhost:9200",
    "ELASTIC_INDEX": "articles-v2",
}


class Configured(Exception):
    pass


@pytest.mark.parametrize(
    ("module", "begin"),
    [
        (daemon, lambda settings: daemon.Watching.of(settings, Beats())),
        (console, lambda settings: console.run_console(settings, print)),
    ],
    ids=["daemon", "console"],
)
def test_a_process_gives_its_public_names_to_its_log(
    module: object, begin: Callable[[Settings], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, tuple[str, ...]] = {}

    def configure(*_: str, **given: tuple[str, ...]) -> None:
        told.update(given)
        raise Configured

    monkeypatch.setattr(module, "configure", configure)
    settings = load_settings(environ=GIVEN)
    with pytest.raises(Configured):
        begin(settings)
    assert "articles-v2" in told["names"]
    assert any("articles" in secret for secret in told["secrets"])
