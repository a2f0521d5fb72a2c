"""Refreshes for models of SQLAlchemy: `track` writes them at each flush, in the session's own transaction.

It sees the objects of a unit of work, whatever put them there (cascades, orphans, a relationship that moved), and not
statements: INSERT, UPDATE and DELETE given to `execute`, `bulk_*`, and what the database changes by itself (ON DELETE
CASCADE). Triggers see all of these: `outbox attach`.
"""

from outbox.sqlalchemy.owners import Models, OwnerColumn, by
from outbox.sqlalchemy.tracker import UntrackedStatement, track
from outbox.sqlalchemy.written import written

__all__ = ["Models", "OwnerColumn", "UntrackedStatement", "by", "track", "written"]
