"""Owns the load of the lane failover: it follows the primary, as an application whose router knows who that is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from labs.ledger import Ledger
from tests.nemesis.failover_ground import FailoverGround
from tests.nemesis.load import Producer
from tests.nemesis.recipe import Recipe


class HeldProducer(Producer):
    def __init__(self, ground: FailoverGround, ledger: Ledger, seed: int, rate: float, recipe: Recipe) -> None:
        super().__init__(ground.database_url, ledger, seed, rate, recipe)
        self._ground = ground
        self._free = threading.Event()
        self._free.set()

    def _connect(self) -> psycopg.Connection[Any]:
        if not self._free.wait(0.2):
            raise psycopg.OperationalError("held")
        return psycopg.connect(self._ground.database_url, connect_timeout=3)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody connects meanwhile; whoever is connected must be ended."""
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()
