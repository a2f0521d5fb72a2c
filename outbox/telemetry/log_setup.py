"""Sets up structlog: one JSON object per line, or readable text on a terminal. Knows no fact (see log_lines)."""

import logging
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final, TextIO

import orjson
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from outbox.telemetry.redaction import LINE_BYTES, escape, escape_for_json, redactor, shorten

# These log each request or connection at INFO; only their warnings belong in our log, in our format.
LIBRARIES: Final = ("elastic_transport", "elasticsearch", "psycopg.pool", "urllib3")
_FIRST: Final = ("ts", "level", "event", "projection", "worker")
_SHORT: Final = 200

Clean = Callable[[str], str]


def configure(
    log_format: str,
    level: str,
    projection: str,
    worker: str,
    *,
    secrets: Iterable[str] = (),
    names: Collection[str] = (),
    stream: TextIO | None = None,
) -> FilteringBoundLogger:
    out = stream or sys.stderr
    render = _json_line if log_format == "json" else _console(out)
    redact = redactor(secrets, names)
    show = escape_for_json if log_format == "json" else escape
    processors: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.format_exc_info,
        _base_fields(projection, worker, lambda text: shorten(show(redact(text)))),
        render,
    ]
    least = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.WriteLoggerFactory(out),  # one write per line: lines of two threads never mix
        cache_logger_on_first_use=True,
    )
    logger: FilteringBoundLogger = structlog.get_logger().bind()
    _route_libraries(logger)
    return logger


def _base_fields(projection: str, worker: str, clean: Clean) -> Processor:
    """These come first in every line, so that lines are easy to compare; what is nothing is left out."""

    def add(_: Any, __: str, event: EventDict) -> EventDict:
        ts = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        base = {"ts": ts, "level": event.pop("level"), "event": event.pop("event")}
        whole = {**base, "projection": projection, "worker": worker, **event}
        return {name: _cleaned(value, clean) for name, value in whole.items() if value is not None}

    return add


def _cleaned(value: Any, clean: Clean) -> Any:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {clean(str(key)): _cleaned(inner, clean) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_cleaned(inner, clean) for inner in value]
    return clean(str(value))


def _json_line(_: Any, __: str, event: EventDict) -> str:
    line = orjson.dumps(event)
    if len(line) > LINE_BYTES:
        line = orjson.dumps(_fit(event))
    return line.decode()


def _fit(event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Cut the longest values first, then leave fields out. The fields that every line has stay."""
    fitted = dict(event, truncated=True)
    by_size = sorted(event, key=lambda name: len(orjson.dumps(event[name])), reverse=True)
    cut = ((name, shorten(value, _SHORT)) for name in by_size if isinstance(value := event[name], str))
    leave_out = ((name, None) for name in by_size if name not in _FIRST)
    for name, value in chain(cut, leave_out):
        if len(orjson.dumps(fitted)) <= LINE_BYTES:
            break
        if value is None:
            del fitted[name]
        else:
            fitted[name] = value
    return fitted


def _console(out: TextIO) -> Processor:
    render = structlog.dev.ConsoleRenderer(
        colors=out.isatty(),
        timestamp_key="ts",
        sort_keys=False,
        exception_formatter=structlog.dev.plain_traceback,
    )

    def line(logger: Any, name: str, event: EventDict) -> str:
        """Projection and worker are the same in every line of one terminal, so they are left out."""
        shown = {key: value for key, value in event.items() if key not in ("projection", "worker")}
        return render(logger, name, shown)[:LINE_BYTES]

    return line


class _Library(logging.Handler):
    """Writes a library's warnings in our format."""

    def __init__(self, logger: FilteringBoundLogger) -> None:
        super().__init__(logging.WARNING)
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
            error = record.exc_info[1] if record.exc_info else None
            reason = f"{type(error).__name__}: {error}" if error else None
            self._logger.log(record.levelno, "library.warned", logger=record.name, message=message, error=reason)
        except Exception:  # a library's log call must never raise into our work
            self.handleError(record)


def _route_libraries(logger: FilteringBoundLogger) -> None:
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, _Library)]:
        root.removeHandler(old)
    root.addHandler(_Library(logger))
    root.setLevel(logging.WARNING)
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)
