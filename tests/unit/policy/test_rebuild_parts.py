"""Cutting keys into parts: bounds touch and never overlap, and a part is not made where it is not worth a process."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.reindex import parts
from outbox.reindex.parts import (
    MOST_PARTS,
    MOST_PROCESSES,
    cut,
    number_of_parts,
    processes,
)


@given(st.lists(st.integers(0, 10**6), unique=True), st.integers(1, 50), st.integers(0, 10**6))
def test_every_key_is_in_exactly_one_range_whatever_the_sample_was(sample: list[int], parts: int, key: int) -> None:
    ranges = cut([str(each) for each in sorted(sample)], parts)
    assert (ranges[0][0], ranges[-1][1]) == (None, None)
    assert [high for _, high in ranges[:-1]] == [low for low, _ in ranges[1:]]
    holding = [(a, b) for a, b in ranges if (a is None or key > int(a)) and (b is None or key <= int(b))]
    assert len(holding) == 1


@pytest.mark.parametrize(
    ("asked", "cores", "documents", "rate", "wanted"),
    [
        (None, 4, 1_000_000, 0.0, 4),
        (None, 4, 1_000, 0.0, 1),
        (None, 4, 1_000_000, 2_000.0, 1),
        (None, 4, 1_000_000, 50_000.0, 4),
        (None, 96, 10**9, 0.0, parts.BY_CORES),
        (3, 1, 1, 2_000.0, 3),
        (10_000, 1, 1, 0.0, MOST_PROCESSES),
    ],
)
def test_processes_are_as_many_as_cores_where_they_are_worth_it_or_as_asked_for(
    asked: int | None, cores: int, documents: int, rate: float, wanted: int
) -> None:
    assert processes(asked, cores, documents, rate) == wanted


def test_no_keys_are_one_part_without_bounds_and_one_key_cuts_once() -> None:
    assert cut([], 8) == [(None, None)]
    assert cut(["7"], 8) == [(None, "7"), ("7", None)]


@given(st.integers(0, 10**10), st.integers(1, MOST_PROCESSES))
def test_there_is_a_part_at_least_and_never_more_than_documents(documents: int, at_once: int) -> None:
    parts = number_of_parts(documents, at_once)
    assert 1 <= parts <= MOST_PARTS
    assert parts <= max(1, documents)
    assert parts >= min(at_once, max(1, documents))
