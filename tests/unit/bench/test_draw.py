"""The page of figures: full results are kept and drawn, others are not; written text stays."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.draw import NOT_YET, collect, redraw
from bench.profile import by_own_time, grown, parsed
from bench.svg import icicle

ROOT = Path(__file__).parents[3]
PAGE = "Words.\n<!-- figures: drain -->\nold\n<!-- end of figures -->\nMore words.\n"


def result(folder: Path, name: str, at: str, **more: Any) -> Path:
    series = [{"name": "outbox", "unit": "events/s", "values": [1.0, 3.0], "median": 2_000.0, "spread": 0.5}]
    bar = {"name": "a & b", "first": 0.5, "goal": 0.7, "most": False, "value": 0.61, "verdict": "passed"}
    about = {"benchmark": "drain", "smoke": False, "turned": {}, "at": at, "commit": "abc", "settings": {}, "notes": []}
    made = folder / name
    made.write_text(json.dumps({**about, "versions": {}, "series": series, "bars": [bar], **more}))
    return made


def test_the_newest_full_result_is_kept_and_drawn(tmp_path: Path) -> None:
    result(tmp_path, "drain-1.json", "2026-01-01T00:00:00")
    result(tmp_path, "drain-2.json", "2026-01-02T00:00:00", commit="newer")
    found = collect(tmp_path, tmp_path / "kept")
    assert found["drain"]["commit"] == "newer"
    page = redraw(PAGE, found)
    assert page.startswith("Words.")
    assert page.endswith("More words.\n")
    assert "old" not in page
    assert "| outbox | 2,000 | events/s | ± 50% of 2 |" in page
    assert redraw(page, found) == page


NOT_WHOLE: list[dict[str, Any]] = [
    *(
        {"turned": turned}
        for turned in ({"events": 5}, {"rounds": 2}, {"product": "opensearch"}, {"rounds": 5, "lanes": 4}, None)
    ),
    {"smoke": True},
    {"benchmark": "flat"},
]


@pytest.mark.parametrize("other", NOT_WHOLE)
def test_a_run_that_is_not_the_whole_benchmark_is_never_kept(tmp_path: Path, other: dict[str, Any]) -> None:
    result(tmp_path, "drain-1.json", "2026-01-01T00:00:00", **other)
    assert collect(tmp_path, tmp_path / "kept") == {}
    assert NOT_YET in redraw(PAGE, {})


def test_a_profile_is_drawn_well_formed() -> None:
    tree = grown(parsed("run (a/lane.py:1);<listcomp> (b/bulk.py:9) 3\nrun (a/lane.py:2) 1\n"))
    assert ElementTree.fromstring(icicle("a < b", tree)).tag.endswith("svg")


def test_a_profile_adds_up_by_function() -> None:
    stacks = parsed("run (a/lane.py:1);encode (b/bulk.py:9) 3\nrun (a/lane.py:2) 1\nnonsense\n")
    assert by_own_time(stacks) == [("encode b/bulk", 0.75), ("run a/lane", 0.25)]
    (top,) = grown(stacks)["children"]
    assert (top["share"], top["children"][0]["share"]) == (1.0, 0.75)
