"""Creates an index that is safe to project to, and reads the versions of documents. It writes no document."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from elasticsearch import ApiError, TransportError, UnsupportedProductError

from outbox.errors import ElasticsearchDown, OutboxError, WrongProduct
from outbox.policy.redact import summary
from outbox.ports import CreatedIndex
from outbox.sink.client import Elastic

GC_DELETES: Final = "1h"
# Above the templates that products install (at most 500), so that this one is used.
TEMPLATE_PRIORITY: Final = 600
_VERSIONS_PER_REQUEST: Final = 1000


class IndexRefused(OutboxError):
    """Elasticsearch refused to create the index. The key needs `manage` on the index and `manage_index_templates`."""


class IndexExists(OutboxError):
    """An index or alias of that name already exists. Check it with `outbox index check`. Nothing was changed."""


class ElasticIndices:
    """For commands: errors are raised as OutboxError, with a remedy."""

    def __init__(self, elastic: Elastic) -> None:
        self._elastic = elastic

    def create(
        self,
        name: str,
        mappings: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> CreatedIndex:
        """Creates `NAME-v1`, the alias `NAME`, and a template for both that forbids automatic creation.

        The template comes first: after it, no index of this name can be created with a guessed mapping.
        """
        wanted = {"gc_deletes": GC_DELETES, **(settings or {})}
        with _translated():
            api = self._elastic.api
            if api.indices.exists(index=[name, f"{name}-v1"], allow_no_indices=False, ignore_unavailable=True):
                raise IndexExists(f"{name} or {name}-v1")
            api.indices.put_index_template(
                name=name,
                index_patterns=[name, f"{name}-v*"],
                allow_auto_create=False,
                priority=TEMPLATE_PRIORITY,
                template={"settings": {"index": wanted}, "mappings": dict(mappings or {})},
                meta={"made_by": "outbox index create"},
            )
            api.indices.create(index=f"{name}-v1", aliases={name: {"is_write_index": True}})
        return CreatedIndex(f"{name}-v1", name, name)

    def versions(self, index: str, ids: Sequence[tuple[str, str | None]]) -> list[int | None]:
        """The version of each (id, routing), None if there is no document. No source is transferred."""
        found: list[int | None] = []
        for portion in _portions(ids):
            docs = [{"_id": name, **({"routing": routing} if routing else {})} for name, routing in portion]
            with _translated():
                reply = self._elastic.api.mget(index=index, docs=docs, source=False)
            found.extend(doc.get("_version") if doc.get("found") else None for doc in reply["docs"])
        return found


def _portions(ids: Sequence[tuple[str, str | None]]) -> Iterator[Sequence[tuple[str, str | None]]]:
    for start in range(0, len(ids), _VERSIONS_PER_REQUEST):
        yield ids[start : start + _VERSIONS_PER_REQUEST]


class _translated:  # noqa: N801
    """Turns the client's exceptions into ours: server down, wrong product, refused."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        match error:
            case UnsupportedProductError():
                raise WrongProduct from error
            case ApiError():
                body = error.body.get("error") if isinstance(error.body, dict) else str(error.body)
                raise IndexRefused(f"{error.status_code} {summary(body)}") from error
            case TransportError():
                raise ElasticsearchDown(summary(error.message)) from error
