"""Owns what was seen on the connection to Elasticsearch: which action on which document was sent, how often."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

ACTION = rb'\n(\{"(?:index|delete)":\{"_id":"((?:[^"\\]|\\.)*)",(?:"routing":"[^"]*",)?"version":\d+,)'
TARGET = rb"(?:^|\n)(?:PUT|POST) /([^/ ?]+)/_bulk"
EITHER = re.compile(ACTION + rb"|" + TARGET)
LONGEST = 700  # an action line; what may be cut in two by a read


class Wire:
    """Hand `tap` to a proxy. Bodies pass by unread: a line break inside JSON text never stands before such a line."""

    def __init__(self) -> None:
        self.sent: Counter[tuple[str, str, bytes]] = Counter()  # index, document, action with routing and version
        self.targets: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._tails: dict[int, bytes] = {}
        self._target: dict[int, str] = {}  # of the request that a link is at

    def tap(self, link: int, data: bytes) -> None:
        with self._lock:
            if data.startswith((b"PUT ", b"POST ", b"GET ", b"HEAD ", b"DELETE ")):
                self._tails.pop(link, None)
            text = self._tails.get(link, b"") + data
            end = 0
            for found in EITHER.finditer(text):
                if found[3] is not None:
                    self._target[link] = found[3].decode()
                    self.targets[self._target[link]] += 1
                else:
                    self.sent[self._target.get(link, "?"), found[2].decode(), found[1]] += 1
                end = found.end()
            self._tails[link] = text[max(end, len(text) - LONGEST) :]

    @property
    def again(self) -> int:
        """Actions that were sent to one index more than once. A document that leaves a place is deleted there under the
        version of its write: that is another action."""
        with self._lock:
            return sum(times > 1 for times in self.sent.values())

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each action once."""
        with self._lock:
            sent = list(self.sent.items())
        for (index, name, action), times in sent:
            (op, about), *_ = json.loads(action.rstrip(b",") + b"}}").items()
            yield {"index": index, "document": name, "op": op, "version": about["version"], "times": times}

    @property
    def documents(self) -> set[str]:
        with self._lock:
            return {name for _, name, _ in self.sent}
