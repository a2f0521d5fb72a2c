"""The sample data of `outbox up`: an article catalogue that changes continuously. It projects nothing."""

from __future__ import annotations

import random
import threading
from importlib.resources import files
from typing import Final

import psycopg
from psycopg import sql

from outbox.errors import DatabaseDown
from outbox.store.attach import attach
from outbox.store.pool import connect
from outbox.store.schema import declaring

TABLE: Final = "outbox_sample.articles"
AUTHORS: Final = "outbox_sample.authors"
ARTICLES_OF: Final = "select id from outbox_sample.articles where author_id = changed.id"
FIRST_ARTICLES: Final = 300
_OURS: Final = "made by outbox up"
_RECONNECT_SECONDS: Final = 1.0


class SampleProducer:
    """A thread that edits a few articles per second, each in its own transaction, as an application would."""

    def __init__(self, database_url: str, view: str) -> None:
        self._url = database_url
        self._view = view
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def prepare(self) -> bool:
        """Create tables, view and triggers. False if the database has other events or another view."""
        with connect(self._url, application="outbox sample") as connection:
            if not self._may_create(connection):
                return False
            with connection.transaction():
                connection.execute(self._script())
            attach.attach(connection, TABLE, entity_type="article", id_column="id")
            if declaring.is_finished(connection):  # else `outbox doctor` names what is left to do after the upgrade
                attach.attach(connection, AUTHORS, entity_type="article", via=ARTICLES_OF)
            connection.execute(
                "select outbox_sample.publish(%s) where not exists (select from outbox_sample.articles)",
                (FIRST_ARTICLES,),
            )
        return True

    def _may_create(self, connection: psycopg.Connection) -> bool:
        name = sql.Identifier(*self._view.split(".")).as_string(connection)
        row = connection.execute(
            "select to_regclass(%(view)s) is null, obj_description(to_regclass(%(view)s), 'pg_class') = %(ours)s,"
            " to_regclass(%(table)s) is null, exists (select from search_outbox_events)",
            {"view": name, "ours": _OURS, "table": TABLE},
        ).fetchone()
        no_view, our_view, no_table, events = row or (False, False, True, True)
        return bool(our_view or (no_view and (not events or not no_table)))

    def _script(self) -> sql.Composed:
        text = files(__package__).joinpath("sample.sql").read_text(encoding="utf-8")
        return sql.SQL(text).format(view=sql.Identifier(*self._view.split(".")))

    def start(self, rate: float) -> None:
        self._thread = threading.Thread(target=self._edit, args=(rate,), name="sample", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(5)

    def _edit(self, rate: float) -> None:
        while not self._stopping.is_set():
            try:
                with connect(self._url, application="outbox sample") as connection:
                    while not self._stopping.wait(random.expovariate(rate)):
                        connection.execute("select outbox_sample.change()")
            except (DatabaseDown, psycopg.OperationalError):
                self._stopping.wait(_RECONNECT_SECONDS)
