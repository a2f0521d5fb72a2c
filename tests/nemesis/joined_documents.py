"""Owns I18: what the index holds of joined documents, against the view at the end. Pure."""

from __future__ import annotations

from labs.checks import holds, nobody
from labs.experiment import CheckResult
from tests.nemesis.evidence import Evidence
from tests.nemesis.joined import REFRESH


def stale(found: Evidence) -> list[str]:
    """Joined documents that are there, and not what the view says."""
    there = {name: found.documents.get(name, {}) for name in found.view}
    return [name for name, doc in there.items() if doc.get("found") and doc["digest"] != found.view[name]]


def lost(found: Evidence) -> list[str]:
    return [name for name in found.view if not found.documents.get(name, {}).get("found")]


def back_again(found: Evidence) -> list[str]:
    """Joined documents that are there, and whose parent is not."""
    return [name for name in found.joined - found.view.keys() if found.documents.get(name, {}).get("found")]


def as_the_view_says(found: Evidence) -> CheckResult:
    """The view is the truth, and content is compared: a version of theirs says nothing."""
    missing, other, back = lost(found), stale(found), back_again(found)
    refreshes = sum(entry.op == REFRESH for entry in found.committed)
    told = f"{refreshes} refreshes, {found.about['joined_swapped']} pairs of transactions committed in the other order;"
    told += f" {len(found.view)} documents compared with the view, {len(missing)} lost, {len(other)} stale;"
    told += f" {len(found.joined - found.view.keys())} deleted, {len(back)} are back"
    wrong = sorted({*missing, *other, *back})
    first = {entry.document: entry.id for entry in found.committed if entry.document in wrong[:1]}
    expected = "every joined document is what the view says, and no other is there"
    finding = nobody("Joined documents", expected, told, list(first.values()), "documents, view, ledger")
    return finding if first or not wrong else holds(finding.name, expected, told, False, finding.evidence)
