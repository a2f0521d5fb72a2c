"""Reports: complete without network access, readable for failures, and reproducible."""

import json
from pathlib import Path

from labs import report
from labs.experiment import find
from labs.report import gallery
from labs.verdict import judge
from tests.unit.labs.made_record import made_record


def written(folder: Path, **more: object) -> str:
    record = made_record(folder, **more)  # type: ignore[arg-type]
    experiment = find("bad_op")
    return report.write(record, experiment, judge(record, experiment)).read_text()


def test_a_failing_page_tells_the_life_of_the_first_event_that_violates(tmp_path: Path) -> None:
    page = written(tmp_path, documents=[])
    assert "The first event that violates it" in page
    assert "claimed" in page
    assert "by w1 (outbox-lanes), attempt 1; it was held by w1 with 3.0 s of its lease left" in page
    assert "The document is absent." in page
    text = (tmp_path / "report.md").read_text()
    assert "# FAIL: A row that can never be sent" in text
    assert "## The first event that violates it" in text


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
