"""What must be true before the first claim: the database answers (waited for) and its schema fits (refused)."""

import threading
import time
from collections.abc import Callable
from typing import Protocol

from outbox.errors import DatabaseDown, SchemaMismatch
from outbox.facts import Announce, Beat, DatabaseBack, DatabaseLost, SchemaChecked


class Schema(Protocol):
    @property
    def ok(self) -> bool: ...


def wait_for_schema(check: Callable[[], Schema], announce: Announce, stop: threading.Event, *, patient: bool) -> None:
    """Wait with backoff until the database answers, saying so; a schema that does not fit is an error at once."""
    started = time.monotonic()
    delay, away = 0.5, False
    while not stop.is_set():
        announce(Beat("start"))
        try:
            schema = check()
        except DatabaseDown as error:
            if not patient:
                raise
            away = True
            announce(DatabaseLost("start", f"{error.detail}; trying again in {delay:.1f} s"))
            stop.wait(delay)
            delay = min(delay * 2, 10.0)
            continue
        if away:
            announce(DatabaseBack("start", time.monotonic() - started))
        announce(SchemaChecked(schema.ok, str(schema)))
        if not schema.ok:
            raise SchemaMismatch(str(schema))
        return
