"""What is committed beside an offset: how often it was begun in vain, and of which topic it is."""

import pytest

from outbox.kafka.begun import SUSPECT_AFTER, Begun, begun_before, progress, topic_of


def test_each_begin_counts_one_and_a_clean_end_takes_it_back() -> None:
    first = Begun(7, begun_before(None))
    assert not first.is_suspect
    second = Begun(7, begun_before(first.mark("t", ended=False)))
    assert (second.before, begun_before(second.mark("t", ended=True))) == (1, 1)
    third = Begun(7, begun_before(second.mark("t", ended=False)))
    assert (third.before, third.is_suspect) == (SUSPECT_AFTER, True)


def test_every_commit_says_of_which_topic_it_is() -> None:
    assert topic_of(Begun(7, 1).mark("4mq_x-Z", ended=False)) == topic_of(progress("4mq_x-Z")) == "4mq_x-Z"
    assert begun_before(progress("4mq_x-Z")) == 0
    assert (begun_before("begun=2"), topic_of("begun=2")) == (2, ""), "as an older release wrote it"


@pytest.mark.parametrize("metadata", [None, "", "begun=", "begun=-1", "begun=x", "begun=9999999", "other", "²", ";;=;"])
def test_what_others_left_there_counts_for_nothing(metadata: str | None) -> None:
    assert (begun_before(metadata), topic_of(metadata)) == (0, "")
