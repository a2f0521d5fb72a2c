"""Who spreads a work over processes ends instead of going on without parts that vanished."""

from unittest.mock import MagicMock

import pytest

from outbox.reindex.parallel import Parallel, PartJob, PartsGone, Spread
from outbox.reindex.parts import PartsProgress, Work, WorkKind


def test_parts_that_vanish_end_it_because_nobody_did_their_keys() -> None:
    """Without them all that is left is done: a comparison would find no drift in keys that it has not read."""
    table, engine = MagicMock(), MagicMock()
    table.numbers.return_value = range(3)
    table.progress.side_effect = [PartsProgress(parts=3, open=3), PartsProgress(parts=1, open=0)]
    parallel = Parallel(
        table_of=lambda _: table,
        space=MagicMock(),
        engine_of=lambda *_: engine,
        in_view=lambda _: True,
        cores=lambda: 8,
        spread=Spread(8),
    )
    with pytest.raises(PartsGone, match="1 of 3"):
        parallel.run(Work(WorkKind.VERIFICATION, 7), PartJob("verification", 7, 10_000.0, 8, "alice"), lambda _: None)
    engine.stop.assert_called_once()
