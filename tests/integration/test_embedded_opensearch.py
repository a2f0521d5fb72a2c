"""An embedded OpenSearch: kept data, and no mistaking one product for the other."""

from pathlib import Path

import pytest

from outbox.embedded import EmbeddedElasticsearch, EmbeddedOpenSearch, EmbeddedSearch
from outbox.embedded.errors import DistributionUnusable


@pytest.mark.parametrize(
    ("kind", "jar", "complaint"),
    [
        (EmbeddedOpenSearch, "elasticsearch-8.14.1.jar", "contains Elasticsearch"),
        (EmbeddedElasticsearch, "opensearch-2.19.6.jar", "contains OpenSearch"),
    ],
)
def test_a_folder_of_the_other_product_is_refused(
    server_folder: Path, kind: type[EmbeddedSearch], jar: str, complaint: str
) -> None:
    home = server_folder / "home"
    (home / "lib").mkdir(parents=True)
    (home / "lib" / jar).touch()
    with pytest.raises(DistributionUnusable, match=complaint):
        kind(server_folder / "server", home=home).launch()
