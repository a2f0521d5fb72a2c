"""No offset may be committed while a record below it has no answer: over whatever order answers come in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.kafka.ledger import OffsetLedger, OutOfOrder


@st.composite
def stories(draw: st.DrawFn) -> list[tuple[str, list[int]]]:
    """Records come with gaps, in batches; of those handed out, any are answered, or stay, in any order."""
    steps: list[tuple[str, list[int]]] = []
    offset, open_ = draw(st.integers(0, 50)), list[int]()
    for _ in range(draw(st.integers(1, 12))):
        if draw(st.booleans()):
            batch = []
            for gap in draw(st.lists(st.integers(0, 3), max_size=6)):
                offset += gap
                batch.append(offset)
                offset += 1
            steps.append(("hand out", batch))
            open_ += batch
        elif open_:
            closed = draw(st.lists(st.sampled_from(open_), unique=True))
            steps.append(("close", closed))
            open_ = [each for each in open_ if each not in closed]
    return steps


@given(stories(), st.integers(0, 5))
def test_every_record_below_what_may_be_committed_has_its_answer(
    steps: list[tuple[str, list[int]]], below: int
) -> None:
    first = next((batch[0] for what, batch in steps if what == "hand out" and batch), 0)
    ledger = OffsetLedger(max(first - below, 0))
    handed, answered = set[int](), set[int]()
    last = ledger.committable()
    for what, offsets in steps:
        if what == "hand out":
            ledger.hand_out(offsets)
            handed.update(offsets)
        else:
            ledger.close(offsets)
            answered.update(offsets)
        committable = ledger.committable()
        unanswered = handed - answered
        assert not [offset for offset in unanswered if offset < committable]
        assert committable == min(unanswered, default=ledger.next), "what could be committed is not held back either"
        assert committable >= last, "a commit never goes back"
        assert ledger.open == len(unanswered)
        last = committable


def test_an_offset_that_comes_again_is_refused() -> None:
    """Handed out twice, the second answer would close what only the first had."""
    ledger = OffsetLedger(0)
    ledger.hand_out([0, 4])
    with pytest.raises(OutOfOrder):
        ledger.hand_out([4])
