"""Settles the rows of a batch that another session had locked: they get a moment, and hold up nobody else."""

from outbox.daemon.batch import Batch
from outbox.daemon.lease import until_unlocked, while_leased
from outbox.facts import Announce, Warned
from outbox.ports import EventStore, Settled


def settle(store: EventStore, announce: Announce, batch: Batch, settled: Settled) -> Settled:
    token, holding, drawn = batch.claimed.token, batch.holding, batch.bodies.first_drawn
    verdicts = dict(batch.verdicts.settlements())

    def again() -> bool:
        nonlocal settled
        waiting = [(id, verdicts[id]) for id in settled.busy]
        now = while_leased(lambda: store.settle(token, waiting, drawn, part=True), holding)
        settled = Settled(
            settled.kept + now.kept, [*settled.lost, *now.lost], now.busy, {**settled.refused, **now.refused}
        )
        return not now.busy

    until_unlocked(again, holding)
    if settled.busy:
        message = f"another session has locked {len(settled.busy)} events; they are sent again after their lease"
        announce(Warned("settle.locked", message, {"event_id": str(settled.busy[0])}))
    return settled
