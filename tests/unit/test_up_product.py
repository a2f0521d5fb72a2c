"""Which search server `outbox up` asks for; starting it is not tested here."""

from typing import Any

import pytest

from outbox.app import up
from outbox.app.up import Up
from outbox.config import load_settings


class Asked(Exception):
    """Instead of starting anything."""


@pytest.mark.parametrize(
    ("product", "variable", "release"),
    [
        ("elasticsearch", None, "8"),
        ("elasticsearch", "9", "9"),
        ("opensearch", None, "opensearch"),
        ("opensearch-2", "9", "opensearch-2"),
    ],
)
def test_the_version_of_elasticsearch_is_a_variable_and_opensearch_is_asked_for_by_name(
    monkeypatch: pytest.MonkeyPatch, product: str, variable: str | None, release: str
) -> None:
    for name in ("DATABASE_URL", "ELASTIC_URL", "OUTBOX_ES_VERSION", "OUTBOX_ES_HOME"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv("OUTBOX_ES_VERSION", variable)

    def stack(*_: Any, es_version: str, **__: Any) -> None:
        raise Asked(es_version)

    monkeypatch.setattr(up, "EmbeddedStack", stack)
    said: list[str] = []
    running = Up(load_settings(require_database=False), 0.0, product, said.append)
    with pytest.raises(Asked, match=f"^{release}$"):
        running.start()
    assert ("OpenSearch" in said[0]) is product.startswith("opensearch")
