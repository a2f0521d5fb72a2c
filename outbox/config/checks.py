"""Owns the rules that compare several settings; it does not check a single value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from outbox.config.settings import COMPOSED_ID, Settings
from outbox.config.values import is_readable_file, short
from outbox.errors import ConfigProblem

Problems = Callable[[Settings], Iterator[ConfigProblem]]


@dataclass(frozen=True)
class CrossRule:
    """A rule, and the variables it reads. It is skipped while one of these is itself invalid."""

    reads: frozenset[str]
    problems: Problems


RULES: list[CrossRule] = []


def _rule(*reads: str) -> Callable[[Problems], Problems]:
    def register(problems: Problems) -> Problems:
        RULES.append(CrossRule(frozenset(reads), problems))
        return problems

    return register


def cross_problems(settings: Settings, wrong: frozenset[str]) -> Iterator[ConfigProblem]:
    """All problems between settings whose own values are valid."""
    for rule in RULES:
        if not rule.reads & wrong:
            yield from rule.problems(settings)


@_rule("OUTBOX_LEASE_SECONDS", "OUTBOX_HEARTBEAT_SECONDS")
def _heartbeat_fits_lease(settings: Settings) -> Iterator[ConfigProblem]:
    longest = settings.lease.seconds - 0.5
    if settings.lease.heartbeat_seconds > longest:
        what = f"is {settings.lease.heartbeat_seconds:g}, but the lease is {settings.lease.seconds:g}"
        yield ConfigProblem("OUTBOX_HEARTBEAT_SECONDS", what, f"Use at most {longest:g}, or leave it unset.")


@_rule("OUTBOX_BASE_BACKOFF_SECONDS", "OUTBOX_MAX_BACKOFF_SECONDS")
def _backoff_grows(settings: Settings) -> Iterator[ConfigProblem]:
    base, cap = settings.retry.base_backoff_seconds, settings.retry.max_backoff_seconds
    if base > cap:
        what = f"is {base:g}, above OUTBOX_MAX_BACKOFF_SECONDS ({cap:g})"
        yield ConfigProblem("OUTBOX_BASE_BACKOFF_SECONDS", what, "Lower this one or raise the other.")


@_rule("OUTBOX_ENTITY_TYPES", "OUTBOX_EXCLUDE_ENTITY_TYPES")
def _types_not_in_both(settings: Settings) -> Iterator[ConfigProblem]:
    both = sorted(set(settings.worker.entity_types) & set(settings.worker.exclude_entity_types))
    if both:
        what = f"names {', '.join(both)}, which OUTBOX_EXCLUDE_ENTITY_TYPES leaves out"
        yield ConfigProblem("OUTBOX_ENTITY_TYPES", what, "Name each entity type in one of the two.")


@_rule("OUTBOX_ENTITY_TYPES", "ELASTIC_INDEX_MAP", "OUTBOX_DOCUMENT_ID")
def _types_fit_composed_id(settings: Settings) -> Iterator[ConfigProblem]:
    if settings.document_id != COMPOSED_ID:
        return
    named = {
        "OUTBOX_ENTITY_TYPES": settings.worker.entity_types,
        "ELASTIC_INDEX_MAP": settings.elastic.index_map,
    }
    for variable, types in named.items():
        bad = sorted(name for name in types if ":" in name)
        if bad:
            remedy = "Rename the type, or set OUTBOX_DOCUMENT_ID={entity_id}."
            yield ConfigProblem(variable, f"names {', '.join(bad)}, but ':' separates type and id in `_id`", remedy)


@_rule("ELASTIC_API_KEY", "ELASTIC_USERNAME", "ELASTIC_PASSWORD")
def _one_login_method(settings: Settings) -> Iterator[ConfigProblem]:
    elastic = settings.elastic
    if elastic.api_key and (elastic.username or elastic.password):
        what = "is set together with ELASTIC_USERNAME or ELASTIC_PASSWORD"
        yield ConfigProblem("ELASTIC_API_KEY", what, "Keep the key, or the user name and password.")
    elif elastic.username and not elastic.password:
        yield ConfigProblem("ELASTIC_PASSWORD", "is not set, but ELASTIC_USERNAME is", "Set both or neither.")
    elif elastic.password and not elastic.username:
        yield ConfigProblem("ELASTIC_USERNAME", "is not set, but ELASTIC_PASSWORD is", "Set both or neither.")


@_rule("ELASTIC_CA_CERTS")
def _certificates_exist(settings: Settings) -> Iterator[ConfigProblem]:
    file = settings.elastic.ca_certs
    if file is not None and not is_readable_file(file):
        yield ConfigProblem(
            "ELASTIC_CA_CERTS", f"names no readable file: {short(file)}", "Give the path of a PEM file."
        )


@_rule("ELASTIC_CA_CERTS", "ELASTIC_URL")
def _certificates_are_used(settings: Settings) -> Iterator[ConfigProblem]:
    if settings.elastic.ca_certs is not None and settings.elastic.url.startswith("http://"):
        remedy = "Use https:// in ELASTIC_URL, or leave it unset."
        yield ConfigProblem("ELASTIC_CA_CERTS", "is set, but ELASTIC_URL is not https", remedy)


@_rule("OUTBOX_METRICS_PORT", "OUTBOX_HTTP_PORT")
def _ports_differ(settings: Settings) -> Iterator[ConfigProblem]:
    if settings.http.port and settings.http.port == settings.http.metrics_port:
        what = f"is {settings.http.port}, the same as OUTBOX_METRICS_PORT"
        yield ConfigProblem("OUTBOX_HTTP_PORT", what, "Leave it unset: that port serves the health pages already.")
