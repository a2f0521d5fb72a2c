"""Reports: complete without network access, readable for failures, and reproducible."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

from labs import report
from labs.experiment import find
from labs.report import gallery, manifest
from labs.verdict import judge
from tests.unit.labs.made_record import made_record, row


class FetchedAddresses(HTMLParser):
    """Everything that a browser would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.found += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "poster")]


def written(folder: Path, **more: object) -> str:
    record = made_record(folder, **more)  # type: ignore[arg-type]
    experiment = find("bad_op")
    return report.write(record, experiment, judge(record, experiment)).read_text()


def test_the_page_needs_nothing_from_the_network_and_runs_no_script(tmp_path: Path) -> None:
    page = written(tmp_path)
    parser = FetchedAddresses()
    parser.feed(page)
    assert not [address for address in parser.found if "//" in address]
    assert "script" not in parser.tags
    assert not re.search(r"url\((?!#hatch)|@import", page)


def test_a_failing_page_tells_the_life_of_the_first_event_that_violates(tmp_path: Path) -> None:
    page = written(tmp_path, documents=[])
    assert "The first event that violates it" in page
    assert "claimed" in page
    assert "by w1 (outbox-lanes), attempt 1; it was held by w1 with 3.0 s of its lease left" in page
    assert "The document is absent." in page
    text = (tmp_path / "report.md").read_text()
    assert "# FAIL: A row that can never be sent" in text
    assert "## The first event that violates it" in text


def test_the_guides_conclusion_is_filled_in(tmp_path: Path) -> None:
    bad = row("e2", "failed", next_retry_at=None, error_reason="deterministic_exception", attempts=1)
    bad["error"] = "ValueError: Unknown outbox op: 'not-a-real-op'"
    written(tmp_path, rows=[row("e1"), bad], notes={"bad": "e2", "recovery_seconds": 0.1})
    text = (tmp_path / "report.md").read_text()
    assert "- Failed is final: yes" in text
    assert "- error_reason is written: yes (value: deterministic_exception)" in text
    assert "- Deterministic errors converge: OK" in text


def test_a_run_that_was_interrupted_has_a_report_too(tmp_path: Path) -> None:
    for name in ("events", "documents", "steps", "timeline"):
        (tmp_path / f"{name}.ndjson").unlink(missing_ok=True)
    problem = {"kind": "interrupted", "phase": "baseline", "message": "interrupted by SIGINT"}
    page = written(tmp_path, problems=[problem], snapshots={}, phases=[], markers=[])
    assert "INCONCLUSIVE" in page
    assert "interrupted by SIGINT (in baseline)" in page


def test_checksums_find_what_was_changed_removed_or_added(tmp_path: Path) -> None:
    written(tmp_path)
    assert manifest.problems(tmp_path) == []
    (tmp_path / "events.ndjson").write_text("{}\n")
    (tmp_path / "audit.ndjson").unlink()
    (tmp_path / "more").write_text("x")
    assert manifest.problems(tmp_path) == ["events.ndjson was changed", "audit.ndjson was removed", "more was added"]


def test_the_gallery_shows_each_lab_once_with_its_history_and_the_table_its_newest_run(tmp_path: Path) -> None:
    for name in ("20260101T000000Z-bad_op-aaaa", "20260102T000000Z-bad_op-bbbb"):
        (tmp_path / name).mkdir()
        written(tmp_path / name)
    page = gallery.write(tmp_path).read_text()
    assert page.count("A row that can never be sent") == 1
    assert page.index("20260102") < page.index("20260101")
    assert "1 experiments" in page
    head, rule, *lines = gallery.table(tmp_path).splitlines()
    told = json.loads((tmp_path / "20260102T000000Z-bad_op-bbbb" / "report.json").read_text())
    assert (head.count("|"), rule.count("|")) == (8, 8)
    assert len(lines) == 1
    assert lines[0].startswith(f"| [`bad_op`](reports/bad_op.md) | {told['verdict']} | {told['finding']}")
    assert told["environment"]["commit"] in lines[0]
    (copied,) = gallery.write_reports(tmp_path, tmp_path / "to")
    assert copied.name == "bad_op.md"
    assert copied.read_text() == (tmp_path / "20260102T000000Z-bad_op-bbbb" / "report.md").read_text()
