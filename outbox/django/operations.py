"""Operations of Django's migrations: `Attach` installs triggers on a table, `Detach` removes them; each reverses the
other. Both use the migration's own connection."""

import os
from collections.abc import Sequence
from typing import Any

from django.db import router
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from outbox.config import load_settings
from outbox.django.conf import environment
from outbox.store.attach import attach


class Attach(Operation):
    """As `outbox attach`, whose options these are, with the same checks. The table is there by an earlier migration:
    Django makes foreign keys at the end of one."""

    reduces_to_sql = False  # what is run depends on the database: `manage.py outbox attach ... --sql` prints it

    def __init__(
        self,
        table: str,
        *,
        entity_type: str,
        id: str | None = None,
        via: str | None = None,
        columns: Sequence[str] = (),
        per_row: bool = False,
    ) -> None:
        self.table = table
        self.way = {"entity_type": entity_type, "id_column": id, "via": via}
        self.more: dict[str, Any] = {"columns": tuple(columns), "per_row": per_row}

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Models stay as they are."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        if _is_ours(app_label, schema_editor):
            view = load_settings(environ={**os.environ, **environment()}).documents
            how: dict[str, Any] = {**self.way, **self.more, "view": view, "run": False}
            schema_editor.execute(attach.attach(_driver(schema_editor), self.table, **how).sql, params=None)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        if _is_ours(app_label, schema_editor):
            schema_editor.execute(attach.detach_sql(_driver(schema_editor), self.table, **self.way), params=None)

    def describe(self) -> str:
        return f"{type(self).__name__} {self.table}: {self.way['entity_type']}"


class Detach(Attach):
    """With the options by which the table was attached: its reverse attaches it so again."""

    database_forwards, database_backwards = Attach.database_backwards, Attach.database_forwards


def _is_ours(app_label: str, editor: BaseDatabaseSchemaEditor) -> bool:
    """As Django's own operations for PostgreSQL decide it."""
    connection = editor.connection
    return connection.vendor == "postgresql" and router.allow_migrate(connection.alias, app_label)


def _driver(editor: BaseDatabaseSchemaEditor) -> Any:
    editor.connection.ensure_connection()
    return editor.connection.connection
