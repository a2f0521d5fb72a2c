"""A replay's checks, pace and end, and the audit's chain: pure rules, no I/O."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.policy.audit import GENESIS, Link, follow_chain
from outbox.policy.replay import ReplayPace, ReplayStatus, exit_code, judge_check, step_rows
from tests.unit.policy.test_webhook import batch


@pytest.mark.parametrize(
    ("poll_count", "ended", "still_open", "status", "looks", "reason"),
    [
        (0, 0, 5, ReplayStatus.FOLLOWING, 1, None),
        (18, 0, 5, ReplayStatus.FOLLOWING, 19, None),
        (19, 0, 5, ReplayStatus.TIMEOUT, 20, "MAX_POLL_COUNT_REACHED:20"),
        (19, 1, 4, ReplayStatus.FOLLOWING, 0, None),  # progress: the count starts again
        (19, 0, 0, ReplayStatus.FOLLOWING, 19, None),  # nothing open: it is settled, never timed out
    ],
)
def test_what_a_check_means(
    poll_count: int, ended: int, still_open: int, status: ReplayStatus, looks: int, reason: str | None
) -> None:
    look = judge_check(poll_count, ended, still_open, 20)
    assert (look.status, look.poll_count, look.reason) == (status, looks, reason)


@given(rate=st.floats(0.01, 5_000), seconds=st.floats(1, 30), lag=st.floats(0, 0.4))
def test_the_rate_is_never_exceeded_whatever_the_delays(rate: float, seconds: float, lag: float) -> None:
    pace, now, moved = ReplayPace(rate), 0.0, 0
    rows = step_rows(rate, 500)
    while now < seconds:
        wait = pace.wait_seconds(now)
        if wait > 0:
            now += wait + lag
            continue
        moved += rows
        pace.moved(rows, now)
    assert moved <= rate * seconds + rows + 1


def chain(texts: list[str]) -> tuple[Link, list[Link]]:
    links, last = [], Link(0, GENESIS)
    for n, text in enumerate(texts, 1):
        last = Link(n, sha256(last.hash + text.encode()).digest(), last.hash, text)
        links.append(last)
    return Link(last.id, last.hash), links


def found(head: Link, links: list[Link]) -> list[int]:
    return [finding.id for finding in follow_chain(iter([head, *links]))]


@given(texts=st.lists(st.text(max_size=5), min_size=1, max_size=12), data=st.data())
def test_a_whole_chain_holds_and_any_single_change_is_found(texts: list[str], data: st.DataObject) -> None:
    head, links = chain(texts)
    assert found(head, links) == []
    place = data.draw(st.integers(0, len(links) - 1))
    pruned = [link._replace(text=None, prev_hash=None) if n == place else link for n, link in enumerate(links)]
    assert found(head, pruned) == []
    changed = [link._replace(text=link.text + "x") if n == place else link for n, link in enumerate(links)]  # type: ignore[operator]
    assert found(head, changed)
    assert found(head, links[:place] + links[place + 1 :]) == [place + 1]
    first = data.draw(st.integers(0, place))
    run = links[place]._replace(text=None, prev_hash=None, since=first + 1)
    assert found(head, [*links[:first], run, *links[place + 1 :]]) == []
    assert found(head, [*links[:first], run, *links[first:]]) == list(range(first + 1, place + 2))
    assert found(head, [*links, Link(len(links) + 1, b"x", links[-1].hash, "forged")])


@pytest.mark.parametrize(
    ("about", "code"),
    [
        ({"total": 3, "replayed": 3, "done": 3}, 0),
        ({"total": 3, "replayed": 3, "done": 2, "failed_again": 1}, 3),
        ({"total": 3, "replayed": 2, "skipped": 1, "done": 2}, 3),
        ({"total": 3, "replayed": 3, "failed_again": 3}, 1),
        ({"total": 3, "skipped": 3}, 1),
        ({"status": ReplayStatus.TIMEOUT, "total": 3, "replayed": 3, "done": 1}, 3),
        ({"status": ReplayStatus.CANCELLED, "total": 3}, 3),
        ({"status": ReplayStatus.FAILED, "total": 3}, 1),
    ],
)
def test_what_wait_exits_with(about: dict[str, int], code: int) -> None:
    assert exit_code(batch(**about)) == code
