"""The one sentence of `outbox status`."""

from datetime import UTC, datetime

import pytest

from outbox.ops.status import Queue, WorkerSeen, sentence

NOW = datetime(2026, 2, 3, tzinfo=UTC)


def queue(**changed: object) -> Queue:
    calm: dict[str, object] = {
        "lag": 0,
        "oldest_age_seconds": 0.0,
        "inflight": 0,
        "stuck": 0,
        "due": 0,
        "waiting": 0,
        "failed": 0,
        "rate": 0.0,
        "drained_in_seconds": None,
        "capped": False,
    }
    return Queue(**{**calm, **changed})  # type: ignore[arg-type]


def worker(*, alive: bool = True) -> WorkerSeen:
    return WorkerSeen("w1", "running", alive, "host", 1, "0.1.0", [], NOW, NOW, 0.0, 0)


PAUSE = {"scope": "*", "kind": "pause"}
PAUSED_TYPE = {"scope": "type:article", "kind": "pause"}


@pytest.mark.parametrize(
    ("seen", "workers", "pauses", "told"),
    [
        (queue(), [], [], "Caught up: nothing waits"),
        (queue(lag=3, oldest_age_seconds=1.2), [worker()], [], "Keeping up: 3 open, the oldest 1.2 s old"),
        (queue(lag=3, oldest_age_seconds=40), [], [], "No projector runs: 3 open, the oldest 40 s old"),
        (queue(lag=3), [worker(alive=False)], [], "No projector runs: 3 open, the oldest 0 s old"),
        (queue(lag=5), [worker()], [PAUSE], "Paused by an operator: 5 open"),
        (queue(), [worker()], [PAUSED_TYPE], "Caught up: nothing waits; article paused"),
        (queue(lag=9, stuck=4), [worker()], [], "4 stuck, waiting to be reclaimed; 9 open"),
        (
            queue(lag=48_000, oldest_age_seconds=300, drained_in_seconds=360.0),
            [worker()],
            [],
            "Falling behind: 48,000 open, the oldest 5 min old, drained in about 6 min",
        ),
        (
            queue(lag=1_000_000, oldest_age_seconds=7300, capped=True),
            [worker()],
            [],
            "Falling behind: 1,000,000+ open, the oldest 2 h old, nothing finished in the last 10 s",
        ),
        (queue(lag=1), [worker()], [{"scope": "let_fail:ab", "kind": "let_fail"}], "Keeping up: 1 open"),
    ],
)
def test_the_sentence_says_the_most_urgent_thing(
    seen: Queue, workers: list[WorkerSeen], pauses: list[dict[str, str]], told: str
) -> None:
    assert sentence(seen, workers, pauses).startswith(told)
