"""Which of several nodes serves next: in turn; a dead one later and later; all of them where all are dead."""

from hypothesis import given
from hypothesis import strategies as st

from outbox.policy.nodes import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, RoundRobin


@given(st.integers(1, 5), st.lists(st.tuples(st.sampled_from(["out", "back", "next"]), st.integers(0, 4)), max_size=60))
def test_whatever_happens_every_request_finds_a_node_and_tries_all(count: int, acts: list[tuple[str, int]]) -> None:
    nodes = RoundRobin(count)
    for now, (act, place) in enumerate(acts):
        if act == "out":
            nodes.leave_out(place % count, float(now))
        elif act == "back":
            nodes.take_back(place % count, float(now))
        else:
            found = nodes.next()
            dead = [each for each in range(count) if nodes.is_left_out(each)]
            assert found is not None
            assert found not in dead or len(dead) == count
    tried: list[int] = []
    while (place_ := nodes.next(tried)) is not None:
        tried.append(place_)
    assert sorted(tried) == list(range(count))


def turns(nodes: RoundRobin, count: int) -> list[int | None]:
    return [nodes.next() for _ in range(count)]


def test_a_node_that_is_left_out_gets_none_until_it_is_taken_back() -> None:
    nodes = RoundRobin(3)
    assert nodes.leave_out(1, 100.0)
    assert turns(nodes, 4) == [0, 2, 0, 2]
    assert nodes.is_left_out(1)
    assert nodes.take_back(1, 107.5) == 7.5
    assert 1 in turns(nodes, 3)
    assert nodes.take_back(1, 108.0) is None


def test_one_request_tries_each_node_once_and_the_dead_ones_last() -> None:
    nodes = RoundRobin(3)
    nodes.leave_out(0, 10.0)
    nodes.leave_out(1, 9.0)
    tried: list[int] = []
    while (place := nodes.next(tried)) is not None:
        tried.append(place)
    assert tried == [2, 1, 0]  # of the dead ones, the one that is due first


def test_the_pause_doubles_with_each_question_in_vain_up_to_a_limit() -> None:
    nodes = RoundRobin(2)
    now, pauses = 50.0, []
    nodes.leave_out(0, now)
    for _ in range(8):
        due = nodes.next_due()
        assert due is not None
        pauses.append(due - now)
        assert list(nodes.due(due - 0.01)) == []
        assert list(nodes.due(due)) == [0]
        now = due
        assert not nodes.leave_out(0, now)  # asked, and no answer
    assert pauses == [FIRST_PAUSE_SECONDS * factor for factor in (1, 2, 4, 8)] + [LONGEST_PAUSE_SECONDS] * 4
