"""The guide's variables: their defaults, and the messages about invalid values."""

import pytest

from labs.loadgen import InvalidVariable, database_url, load_from
from labs.producing import Load


def test_the_defaults_are_the_guides_values() -> None:
    assert load_from({}) == Load("create", total=3000, content_bytes=200, rate=100.0, concurrency=20)


@pytest.mark.parametrize(
    ("name", "value"),
    [("LOADGEN_SCENARIO", "destroy"), ("TOTAL_OPS", "many"), ("TOTAL_OPS", "0"), ("RATE_PER_SEC", "-1")],
)
def test_a_value_that_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidVariable, match=name):
        load_from({name: value})


def test_a_sqlalchemy_address_is_taken_and_a_missing_one_is_said() -> None:
    assert database_url({"DATABASE_URL": "postgresql+psycopg://a@b/c"}) == "postgresql://a@b/c"
    with pytest.raises(InvalidVariable, match="DATABASE_URL is required"):
        database_url({})
