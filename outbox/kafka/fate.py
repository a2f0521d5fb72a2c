"""What becomes of a record by the verdict on its event. Pure.

verdict                                    the record
done                                       passes
done, and it was a delete                  is stored as a done row first: the guard against late upserts reads rows
refused by a busy node                     stays and is sent again, twice: most of it is taken then, and needs no row
to be retried, failed, held by the brake   is stored as a row, which a table lane, a replay or a person takes up
a shard is down, and others answer         is stored as a row too: otherwise every partition would wait for that shard
released, or the sink as a whole is down   stays: it is handed out again, and no attempt is spent
"""

from enum import Enum, auto
from typing import Final

from outbox.policy.event import DELETE, Event
from outbox.policy.outcome import Failure, FailureClass, Reason
from outbox.policy.settle import Done, Failed, Released, RetryLater, Settlement

BRAKED: Final = "braked"
LONGEST_STAY_SECONDS: Final = 10.0  # before a record that stays is handed out again
AGAIN_SECONDS: Final = (0.25, 1.0)  # before each time that a refused record is sent again from memory


class Fate(Enum):
    PASS = auto()
    STORE = auto()
    STAY = auto()
    AGAIN = auto()  # stays, and is counted


def fate(event: Event, settlement: Settlement, *, others_done: bool = False, times: int = 0) -> Fate:
    """`others_done`: the sink has taken another record of its batch. `times`: it was sent again from memory."""
    match settlement:
        case Done(gone=gone):
            return Fate.STORE if event.op == DELETE and not gone else Fate.PASS
        case RetryLater(failure=failure) if _is_busy(failure) and times < len(AGAIN_SECONDS):
            return Fate.AGAIN
        case RetryLater(failure=failure) | Failed(failure=failure):
            return Fate.STAY if _is_outage(failure, others_done) else Fate.STORE
        case Released(reason=reason, failure=met):
            return Fate.STORE if reason == BRAKED or (met is not None and met.shard and others_done) else Fate.STAY


def stay_seconds(settlement: Settlement) -> float:
    """How long a record that stays should rest. Where it says nothing, the lane's own pace and the gate decide."""
    delay = settlement.delay_seconds if isinstance(settlement, Released) else None
    return min(delay or 0.0, LONGEST_STAY_SECONDS)


def _is_busy(failure: Failure) -> bool:
    return failure.reason in (Reason.ES_429, Reason.ES_5XX) and not (failure.whole or failure.shard)


def _is_outage(failure: Failure, others_done: bool) -> bool:
    """The whole request met it, so every other record would be stored too: the log already keeps them."""
    if failure.shard and others_done:
        return False
    return failure.whole and failure.failure_class is not FailureClass.DETERMINISTIC
