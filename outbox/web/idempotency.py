"""Keeps the answers of POSTs by their `Idempotency-Key`, so that a repeated one does nothing twice. In memory only.

A replay carries its key into its row as well, so that there it holds over restarts; all other acts are refused by the
state that they left behind.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response, StreamingResponse

from outbox.web.problems import RefusedRequest

HEADER: Final = "idempotency-key"
REPEATED: Final = "idempotency-replayed"
MOST_KEPT: Final = 1_000
KEPT_SECONDS: Final = 24 * 3600
_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")


@dataclass(slots=True)
class _Held:
    fingerprint: str
    at: float
    response: Response | None = None


class Kept:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[str, str, str], _Held] = OrderedDict()

    async def once(
        self, who: str, path: str, key: str, body: bytes, act: Callable[[], Awaitable[Response]]
    ) -> Response:
        """The answer of the first request with this key; `act` runs only for that one."""
        if not _KEY.fullmatch(key):
            raise RefusedRequest(422, "An Idempotency-Key is 1 to 200 printable ASCII characters without blanks.")
        name, fingerprint = (who, path, key), hashlib.sha256(body).hexdigest()
        if known := self._take(name, fingerprint):
            headers = {name: value for name, value in known.headers.items() if name != "content-length"}
            return Response(bytes(known.body), known.status_code, headers | {REPEATED: "true"})
        try:
            response = await act()
        except BaseException:
            self._forget(name)
            raise
        streamed = isinstance(response, StreamingResponse)  # its body is gone once it was sent
        if response.status_code >= 500 or response.status_code == 429 or streamed:
            self._forget(name)
        else:
            self._held[name].response = response
        return response

    def _take(self, name: tuple[str, str, str], fingerprint: str) -> Response | None:
        """The kept answer, or None and the key is now ours."""
        now = self._clock()
        with self._lock:
            held = self._held.get(name)
            if held is None or now - held.at > KEPT_SECONDS:
                self._held[name] = _Held(fingerprint, now)
                self._held.move_to_end(name)
                while len(self._held) > MOST_KEPT:
                    self._held.popitem(last=False)
                return None
            if held.fingerprint != fingerprint:
                raise RefusedRequest(422, "This Idempotency-Key was used with another body; nothing was done.")
            if held.response is None:
                raise RefusedRequest(
                    409, "The first request with this Idempotency-Key still runs.", headers={"retry-after": "2"}
                )
            return held.response

    def _forget(self, name: tuple[str, str, str]) -> None:
        with self._lock:
            self._held.pop(name, None)
