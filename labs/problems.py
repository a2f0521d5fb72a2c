"""Classifies an exception by its phase: a problem of the product, of the servers or of the lab."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from elasticsearch import TransportError

from labs.errors import NotHere, NotSeen, ServerDied, WorkerDied

BROKEN_LAB = "broken_lab"


@dataclass(frozen=True, slots=True)
class Problem:
    kind: str
    message: str


def problem(error: Exception, phase: str) -> Problem:
    match error:
        case WorkerDied():
            return Problem("no_steady_state" if phase == "baseline" else "worker_died", str(error))
        case ServerDied():
            return Problem("server_died", str(error))
        case NotHere():
            return Problem("not_here", str(error))
        case NotSeen():
            return Problem(_late(phase), str(error))
        case psycopg.OperationalError():
            return Problem("server_died", f"PostgreSQL no longer answers: {str(error).splitlines()[0]}")
        case TransportError():
            return Problem("server_died", f"Elasticsearch no longer answers: {type(error).__name__}")
        case _:
            return Problem(BROKEN_LAB, f"the lab itself failed: {type(error).__name__}: {error}")


def _late(phase: str) -> str:
    """Before the fault the run is inconclusive; after it, the product did not recover."""
    return {"recovery": "late", "quiesce": "late", "fault": "not_seen"}.get(phase, "no_steady_state")
