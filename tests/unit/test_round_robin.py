"""Which of several nodes serves next: in turn; a dead one later and later; all of them where all are dead."""

from hypothesis import given
from hypothesis import strategies as st

from outbox.policy.nodes import RoundRobin


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
