"""What each reason of a failure means and what a person does about it, in two or three sentences. Decides nothing."""

from __future__ import annotations

from typing import Final, NamedTuple


class Advice(NamedTuple):
    meaning: str
    steps: tuple[str, ...]


_OUTAGE: Final = (
    "Check the search server first: `outbox doctor` says whether it answers.",
    "When it is back, events that still have attempts are retried without help.",
    "Replay those that failed meanwhile: their cause is gone.",
)
RUNBOOK: Final[dict[str, Advice]] = {
    "connect": Advice("No connection to the search server, or it broke.", _OUTAGE),
    "timeout": Advice(
        "The search server did not answer in time; whether it wrote the document is not known, and sending it again "
        "does no harm.",
        ("Check the load of the search server and ELASTIC_TIMEOUT_SECONDS.", *_OUTAGE[1:]),
    ),
    "es_429": Advice(
        "The search server was too busy: queues or memory were full.",
        ("Wait, or give it more resources: the batch limit has already shrunk.", *_OUTAGE[1:]),
    ),
    "es_5xx": Advice("The search server had an error of its own, or shards were not available.", _OUTAGE),
    "unknown_exception": Advice(
        "This failure is not classified yet. It was retried until its attempts were used up.",
        (
            "Read the error in full below; `outbox explain-error` shows which rule was used.",
            "Report it: it is counted.",
        ),
    ),
    "es_rejected_document": Advice(
        "The search server refuses this document as it is: a value does not fit the mapping, or a limit is exceeded.",
        (
            "The field at fault is marked in the difference.",
            "Fix the mapping, or the data at its source. A newer event of the entity may have superseded this one.",
            "Replay the group when the cause is gone, or discard the event with a reason.",
        ),
    ),
    "too_large": Advice(
        "The document alone is larger than the search server takes in one request.",
        ("Make the document smaller at its source, or raise http.max_content_length.", "Then replay, or discard it."),
    ),
    "deterministic_exception": Advice(
        "The row was refused before anything was sent: its op, id, version or payload is invalid.",
        ("The error says which. Fix the producer.", "Discard the event, and let the producer write a right one."),
    ),
    "crash_suspect": Advice(
        "The worker that had claimed this event alone died, again and again. The event may kill workers.",
        ("Check its size and content before anything else.", "Replay it once, and watch `abandoned_count`."),
    ),
    "es_auth": Advice(
        "The server does not accept the credentials, there are none, or they lack a right.",
        ("Renew the key or password, or grant what the error names; projection resumes without help.",),
    ),
    "es_index_missing": Advice(
        "The index or alias is not there.", ("`outbox index create` makes it; projection resumes without help.",)
    ),
    "es_blocked": Advice(
        "The index or the cluster is blocked for writes, often because a disk is full.",
        ("Free the disk and lift the block; projection resumes without help.",),
    ),
    "es_config": Advice(
        "The server, its version or the index is not what it should be.", ("`outbox doctor` says which.",)
    ),
    "documents_unavailable": Advice(
        "The view of documents cannot be read.", ("Create it or grant SELECT; projection resumes without help.",)
    ),
}
OTHER: Final = Advice(
    "This reason is not one of ours: the row was there before the table was adopted.",
    ("Read the error in full.", "Replay one event of the group and see what happens."),
)


def advice(reason: str | None) -> Advice:
    return RUNBOOK.get(reason or "", OTHER)
