"""How often a partition was begun in vain, as the group keeps it."""

import pytest

from outbox.stream.begun import SUSPECT_AFTER, Begun, begun_before


def test_each_begin_counts_one_and_a_clean_end_takes_it_back() -> None:
    first = Begun(7, begun_before(None))
    assert not first.is_suspect
    second = Begun(7, begun_before(first.mark(ended=False)))
    assert (second.before, begun_before(second.mark(ended=True))) == (1, 1)
    third = Begun(7, begun_before(second.mark(ended=False)))
    assert (third.before, third.is_suspect) == (SUSPECT_AFTER, True)


@pytest.mark.parametrize("metadata", [None, "", "begun=", "begun=-1", "begun=x", "begun=9999999", "other", "²"])
def test_what_others_left_there_counts_for_nothing(metadata: str | None) -> None:
    assert begun_before(metadata) == 0
