"""Checks a target index for `outbox doctor` and `outbox index check`: settings, risks and remedies. Changes nothing."""

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from outbox.facts import Announce, SinkIdentified, Warned
from outbox.policy.outcome import Failure, Reason
from outbox.ports import Finding, Level
from outbox.sink.client import Elastic, Reply
from outbox.sink.target_check import Targets

_SECONDS: Final = {"nanos": 1e-9, "micros": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class TargetCheck:
    """Checks indexes of one server. A query that the key may not make gives the finding UNKNOWN."""

    def __init__(self, elastic: Elastic, targets: Targets, max_processing_seconds: float = 600.0) -> None:
        self._elastic = elastic
        self._targets = targets
        self._max_processing_seconds = max_processing_seconds

    def check(self, name: str) -> list[Finding]:
        """All findings about a target. If it cannot be written to, only that."""
        settings = self._settings(name)
        if settings is None:
            return [*self._writable(name), self.template(name)]
        return [
            *self._writable(name),
            self._kind(name),
            *(finding for index, found in settings.items() for finding in self._durable(index, found)),
            self.template(name),
            self.disk(),
        ]

    def warn(self, names: Sequence[str], announce: Announce) -> bool:
        """Announces the server and warnings about the targets. False: nobody can say what it is; call again later."""
        if not self._targets.answers() or isinstance(server := self._elastic.server(), Failure):
            return False
        announce(SinkIdentified(server.product, server.number))
        for name in names:
            settings = self._settings(name) or {}
            findings = [self.template(name), *(self._gc_deletes(i, found) for i, found in settings.items())]
            for finding in findings:
                if finding.level in (Level.WARN, Level.BAD):
                    announce(Warned(f"index.{finding.name}", f"{finding.detail}. {finding.remedy}", {"index": name}))
        return True

    def _writable(self, name: str) -> Iterator[Finding]:
        remedy = f"Run `outbox index create {name}`."
        if failure := self._targets.probe(name):
            is_missing = failure.reason is Reason.ES_INDEX_MISSING
            yield Finding("writable", Level.BAD, failure.error, remedy if is_missing else f"cause: {failure.reason}")
        elif self._settings(name) is None:
            yield Finding("exists", Level.BAD, f"{name} does not exist, or the key may not see it", remedy)
        else:
            yield Finding("writable", Level.OK, f"{name} accepts writes")

    def _kind(self, name: str) -> Finding:
        known = self._targets.known(name, fresh_seconds=0)
        if isinstance(known, Failure) or not known.alias:
            remedy = "An alias lets `outbox rebuild` swap the index behind it; see `outbox index create`."
            return Finding("alias", Level.WARN, f"{name} is an index, not an alias", remedy)
        return Finding("alias", Level.OK, f"{name} is an alias with a write index")

    def _durable(self, index: str, settings: Mapping[str, Any]) -> Iterator[Finding]:
        yield self._gc_deletes(index, settings)
        if settings.get("index.translog.durability", "request") != "request":
            remedy = "Set index.translog.durability to request. Now a crash can lose acknowledged writes."
            yield Finding("translog", Level.WARN, f"{index} acknowledges writes before it syncs them", remedy)
        else:
            yield Finding("translog", Level.OK, f"{index} syncs writes before it acknowledges them")

    def _gc_deletes(self, index: str, settings: Mapping[str, Any]) -> Finding:
        value = str(settings.get("index.gc_deletes", "60s"))
        if seconds(value) < self._max_processing_seconds:
            detail = f"{index} forgets deletes after {value}, which is less than OUTBOX_MAX_PROCESSING_SECONDS"
            remedy = f"PUT /{index}/_settings with index.gc_deletes=1h."
            return Finding("gc_deletes", Level.WARN, detail, remedy)
        return Finding("gc_deletes", Level.OK, f"{index} remembers deletes for {value}")

    def template(self, name: str) -> Finding:
        """Whether the server may create this target automatically, with a guessed mapping."""
        reply = self._get("/_index_template?filter_path=index_templates")
        if reply is None:
            return Finding("auto_create", Level.UNKNOWN, "the key may not read templates", "Check them manually.")
        best = _strongest(reply.get("index_templates", []), name)
        if self._elastic.dialect.is_auto_created(_flat(best.get("template", {}).get("settings", {}))):
            return Finding("auto_create", Level.OK, f"{name} is never filled if a write creates it: it is blocked then")
        allowed, setting = best.get("allow_auto_create"), None
        if allowed is None and (setting := self._setting("action.auto_create_index")) is not None:
            allowed = may_create(setting, name)
        detail = f"no template prevents the automatic creation of {name} with a guessed mapping"
        if allowed is None:
            detail += ", and the key may not read the setting action.auto_create_index"
            return Finding("auto_create", Level.UNKNOWN, detail, self._against_creation(name, None))
        if allowed:
            return Finding("auto_create", Level.WARN, detail, self._against_creation(name, setting))
        return Finding("auto_create", Level.OK, f"{name} is never created automatically")

    def _against_creation(self, name: str, setting: str | None) -> str:
        remedy = "`outbox index create` adds one for a new index."
        if self._elastic.dialect.forbids_auto_create:
            return remedy
        rest = "+*" if setting == "true" else setting
        value = f"-{name}*,{rest}" if rest else f"-{name}* before what is there"
        return (
            f"{remedy} Two other ways: a role without indices:admin/create (docs/security.md), or the cluster setting"
            f" action.auto_create_index: {value}."
        )

    def disk(self) -> Finding:
        """The fullest node compared with the watermarks; only percentages are compared."""
        nodes = self._get("/_cat/allocation?format=json&h=node,disk.percent", list)
        if nodes is None:
            return Finding("disk", Level.UNKNOWN, "the key may not read the disk usage")
        if self._setting("cluster.routing.allocation.disk.threshold_enabled") == "false":
            return Finding("disk", Level.OK, "watermarks are switched off")
        used = max((float(node.get("disk.percent") or 0) for node in nodes), default=0.0)
        for mark, level in (("flood_stage", Level.BAD), ("high", Level.WARN)):
            limit = self._setting(f"cluster.routing.allocation.disk.watermark.{mark}") or ""
            if limit.endswith("%") and used >= float(limit[:-1]):
                return Finding("disk", level, f"{used:g} % used, over {mark} ({limit})", "Free disk space.")
        return Finding("disk", Level.OK, f"{used:g} % used on the fullest node")

    def _settings(self, name: str) -> Mapping[str, Mapping[str, Any]] | None:
        found = self._get(f"/{quote(name, safe='')}/_settings?flat_settings=true")
        return {index: each.get("settings", {}) for index, each in found.items()} if found else None

    def _setting(self, name: str) -> str | None:
        # No filter_path: it takes the dots of a flat name for nesting and finds nothing.
        found = self._get("/_cluster/settings?include_defaults=true&flat_settings=true")
        for layer in ("transient", "persistent", "defaults"):
            if found and name in found.get(layer, {}):
                return str(found[layer][name])
        return None

    def _get(self, path: str, kind: Callable[[], Any] = dict) -> Any:
        reply = self._elastic.call("GET", path)
        fine = isinstance(reply, Reply) and reply.status == 200 and isinstance(reply.body, type(kind()))
        return reply.body if isinstance(reply, Reply) and fine else None


def _strongest(templates: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    fitting = [
        template
        for template in (found.get("index_template", {}) for found in templates)
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in template.get("index_patterns", []))
    ]
    return max(fitting, key=lambda template: template.get("priority") or 0, default={})


def _flat(settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """A template's settings come nested; OpenSearch 2.19 does not heed `flat_settings` there."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        path = f"{before}{name}"
        found |= _flat(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return found


def may_create(setting: str, name: str) -> bool:
    """What `action.auto_create_index` says of a name: true, false, or patterns of which the first that fits decides."""
    if setting in ("true", "false"):
        return setting == "true"
    for pattern in (part.strip() for part in setting.split(",")):
        if fnmatch.fnmatchcase(name, pattern.lstrip("+-")):
            return not pattern.startswith("-")
    return False


def seconds(value: str) -> float:
    """Parses Elasticsearch's durations: `60s`, `1h`, `-1`. Invalid text counts as 0."""
    found = re.fullmatch(r"(-?\d+(?:\.\d+)?)([a-z]*)", value.strip())
    return float(found[1]) * _SECONDS.get(found[2], 1e-3) if found else 0.0
