"""Where a partition begins, by what is committed and what the broker has."""

import pytest

from outbox.kafka.partitions import Start, start_of


@pytest.mark.parametrize(
    ("committed", "anew", "start"),
    [
        (None, False, Start(10)),
        (15, False, Start(15)),
        (3, False, Start(10, 3)),
        (30, False, Start(10, 30)),
        (15, True, Start(10, 15)),
        (None, True, Start(10, 0)),
    ],
)
def test_what_is_gone_is_a_gap_and_a_topic_that_was_made_anew_is_read_from_its_beginning(
    committed: int | None, anew: bool, start: Start
) -> None:
    assert start_of(committed, 10, 20, anew=anew) == start
