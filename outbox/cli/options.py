"""Owns options that several commands take: who and why, the event filter and the audit filter. `policy` reads them."""

from __future__ import annotations

import functools
import getpass
import inspect
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from outbox.errors import UsageError
from outbox.policy.filter import BadFilter, EventFilter, read_event_filter

By = Annotated[str, typer.Option("--by", help="Your name, for the audit log.", metavar="NAME")]
ByLogin = Annotated[
    str,
    typer.Option(
        "--by",
        help="Your name, for the audit log.",
        metavar="NAME",
        default_factory=getpass.getuser,
        show_default="your login name",
    ),
]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the audit log.", metavar="TEXT")]

Command = Callable[..., None]
Raw = dict[str, Any]  # the filter's values as they were typed, by the names of its fields

_ENTITY: Final = {
    "entity_type": ("--entity-type -t", "Entity type.", "TYPE"),
    "entity_id": ("--entity-id", "Entity id.", "ID"),
}
_TRACE: Final = {"trace_id": ("--trace-id", "Trace id of the producer.", "HEX")}
_TIMES: Final = {
    "since": ("--since", "Not before: an ISO time, or an age such as 2h.", "TIME"),
    "until": ("--until", "Before: an ISO time, or an age such as 10m.", "TIME"),
}


def _options(panel: str, fields: Mapping[str, tuple[str, str, str]]) -> dict[str, Any]:
    def option(name: str, flags: str, text: str, metavar: str) -> Any:
        kind: Any = list[str] | None if name == "ids" else str | None
        given = typer.Option(*flags.split(), help=text, metavar=metavar, rich_help_panel=panel, show_default=False)
        return Annotated[kind, given]

    return {name: option(name, *about) for name, about in fields.items()}


_EVENT: Final = _options(
    "Filter (all that are given must match)",
    {
        **_ENTITY,
        "error_reason": ("--error-reason", "Such as es_rejected_document.", "REASON"),
        "error_code": ("--error-code", "Such as OUTBOX_PAYLOAD_INVALID.", "CODE"),
        "dead_reason": ("--dead-reason", "Such as non_retryable.", "REASON"),
        "failure_type": ("--failure-type", "Such as document or network.", "TYPE"),
        "fingerprint": ("--fingerprint", "The same kind of failure.", "HEX"),
        **_TRACE,
        "ids": ("--id", "Event id; repeatable, 500 at most.", "UUID"),
        **_TIMES,
    },
)
_AUDIT: Final = _options(
    "Filter (all must match)",
    {
        **_ENTITY,
        **_TRACE,
        "action": ("--action", "Such as REPLAY_BATCH_ITEM.", "ACTION"),
        "actor": ("--actor", "Who did it.", "NAME"),
        "batch_id": ("--batch-id", "A replay or flush.", "UUID"),
        **_TIMES,
    },
)


def filters_events(*names: str) -> Callable[[Command], Command]:
    """The command's parameter `raw` becomes the options of the event filter, or some of them."""
    return lambda command: _with({name: _EVENT[name] for name in names or _EVENT}, command)


def filters_audit(command: Command) -> Command:
    """The same for the audit filter."""
    return _with(_AUDIT, command)


def _with(options: Mapping[str, Any], command: Command) -> Command:
    kind = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(name, kind, default=None, annotation=option) for name, option in options.items()]
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        parameters += added if parameter.name == "raw" else [parameter.replace(kind=kind)]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        command(raw={name: given.pop(name) for name in options}, **given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def event_filter(raw: Raw) -> EventFilter:
    """All problems at once, named by their flags."""
    try:
        return read_event_filter(raw, datetime.now(UTC))
    except BadFilter as wrong:
        problems = "; ".join(f"--{_flag(field)}: {what}" for field, what in wrong.problems)
        raise UsageError(problems) from wrong


def _flag(field: str) -> str:
    return "id" if field == "ids" else field.replace("_", "-")
