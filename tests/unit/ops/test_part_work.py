"""What a process of parts says of its error."""

import orjson

from outbox.errors import ConfigurationError, ElasticsearchDown
from outbox.reindex.backfill import IndexLost
from outbox.reindex.part_processes import PartProcessFailed, reported_error, told_error


def test_an_error_crosses_a_process_by_its_name_and_words() -> None:
    def crossed(error: Exception) -> Exception:
        return reported_error(orjson.loads(orjson.dumps(told_error(error))))

    lost = crossed(IndexLost("articles: 404"))
    assert isinstance(lost, IndexLost)
    assert lost.detail == "articles: 404"
    assert crossed(ElasticsearchDown("no reply")).exit_code == 75  # type: ignore[attr-defined]
    bug = crossed(ValueError("postgresql://u:secret@h/x"))
    assert isinstance(bug, PartProcessFailed)
    assert "secret" not in str(bug)
    assert isinstance(crossed(ConfigurationError([])), Exception)
