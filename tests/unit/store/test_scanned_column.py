"""Which column of which table the ids of a view are, as a plan says it: only a plain column of a scanned
table counts."""

from typing import Any

import pytest

from outbox.reindex.key_bounds import ScannedColumn, scanned_column

SCAN = {"Node Type": "Seq Scan", "Relation Name": "articles", "Schema": "shop", "Alias": "a", "Output": ["a.id"]}


@pytest.mark.parametrize(
    ("plan", "found"),
    [
        ({**SCAN, "Plan Rows": 50}, ScannedColumn(50, "shop", "articles", "id")),
        ({**SCAN, "Output": ['a."Odd ""id"""']}, ScannedColumn(0, "shop", "articles", 'Odd "id"')),
        ({**SCAN, "Output": ["(a.id)::text"]}, ScannedColumn(0)),
        ({**SCAN, "Alias": "b"}, ScannedColumn(0)),
        (
            {"Output": ["a.id"], "Plans": [{"Plans": [SCAN]}], "Plan Rows": 9},
            ScannedColumn(9, "shop", "articles", "id"),
        ),
        ({"Output": ["a.id"], "Plans": [{"Alias": "a", "Output": ["x.id"]}]}, ScannedColumn(0)),
        ({"Plan Rows": 3}, ScannedColumn(3)),
    ],
)
def test_a_plain_column_of_a_scanned_table_is_found(plan: dict[str, Any], found: ScannedColumn) -> None:
    assert scanned_column(plan) == found
