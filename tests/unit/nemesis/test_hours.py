"""The hours: what counts as flat, that a stopped run goes on, and that slices hide nothing."""

import gzip
import json
import tarfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labs.collect import write
from labs.ledger import LedgerEntry
from tests.nemesis import command, hours, hours_judge
from tests.nemesis.archive import pack
from tests.nemesis.hours_judge import COLUMNS, judged, ledger_in, slice_of, slice_of_event, steps_in, trends
from tests.nemesis.load import is_bad
from tests.unit.nemesis.test_judge import ABOUT, Row, history, step

Files = dict[str, list[Row]]
SLICES, DOCUMENTS = 4, 120


@pytest.fixture(autouse=True)
def few_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (hours, hours_judge):
        monkeypatch.setattr(module, "SLICES", SLICES)


def samples(of: Callable[[int], float], minutes: int = 100, name: str = "w1 private MB") -> list[Row]:
    return [{"minute": n, "series": {name: of(n), "events table MB": 70.0}} for n in range(1, minutes + 1)]


def flat(found: list[Row]) -> dict[str, bool]:
    return {trend.name: trend.flat for trend in trends(found)}


@pytest.mark.parametrize(
    ("shape", "of", "ok"),
    [
        ("flat", lambda n: 80.0, True),
        ("noisy", lambda n: 80.0 + (n * 7919) % 13, True),
        ("growing until minute 40", lambda n: min(n, 40) * 2.0, True),
        ("a short peak", lambda n: 300.0 if n in (95, 96) else 80.0, True),
        ("a leak", lambda n: 80.0 + 0.2 * n, False),
        ("a jump", lambda n: 80.0 if n < 70 else 86.0, False),
        ("a fall", lambda n: 80.0 if n < 70 else 70.0, False),
    ],
)
def test_what_is_flat(shape: str, of: Callable[[int], float], ok: bool) -> None:
    assert flat(samples(of)) == {"w1 private MB": ok, "events table MB": True}


def test_a_shorter_run_is_judged_from_two_fifths_on() -> None:
    assert flat(samples(lambda n: min(n, 4) * 20.0, minutes=10))["w1 private MB"]
    assert not flat(samples(lambda n: n * 20.0, minutes=10))["w1 private MB"]


def test_one_file_more_is_no_leak() -> None:
    assert flat(samples(lambda n: 12 + (n > 70), name="w1 files"))["w1 files"]
    assert not flat(samples(lambda n: 12 + 2 * (n > 70), name="w1 files"))["w1 files"]


def stored(folder: Path, change: Callable[[list[LedgerEntry], Files], Any] = lambda ledger, files: None) -> Path:
    """A good run of twelve hours' form: some hundred documents, each written twice, deleted and pruned or there."""
    about, _ = history()
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "w1.1.ndjson").write_text('{"event":"batch.settled"}\n', encoding="utf-8")
    ledger, files = made()
    change(ledger, files)
    with hours.SlicedLedger(folder) as sliced:
        for entry in ledger:
            sliced.add(entry)
    for n, row in enumerate(files.pop("steps")):
        cells = [n if column == "n" else row[column] for column in COLUMNS]
        with gzip.open(steps_in(folder, slice_of_event(row["event_id"])), "at", encoding="utf-8") as file:
            file.write((json.dumps(cells) + "\n") * 2)  # as if the answer to its removal had been lost
    for name, rows in files.items():
        write(folder / f"{name}.ndjson", rows)
    about |= {**ABOUT, "lane": "hours", "minutes": 100, "rate": len(ledger) / 6000, "kinds": ["kill_9"]}
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
    return folder


def made() -> tuple[list[LedgerEntry], Files]:
    producer, version = hours.SteadyProducer.__new__(hours.SteadyProducer), 0
    ledger: list[LedgerEntry] = []
    files: Files = {name: [] for name in ("steps", "events", "documents", "standing", "audit", "leases")}
    for n in range(DOCUMENTS):
        name, gone = f"page:e{n}", n % 5 == 0
        for op in ("upsert", "delete" if gone else "upsert"):
            version += 1
            event = str(producer._event_id(name))
            body = f"d{version}" if op == "upsert" else ""
            ledger.append(LedgerEntry(event, "page", f"e{n}", op, version, body, 1.0))
            files["steps"] += [
                step(event, "pending", "processing", old_token=None),
                step(event, "processing", "done"),
                step(event, "done", None),
            ]
        found = {"found": not gone, "version": None if gone else version, "digest": "" if gone else f"d{version}"}
        files["documents"].append({"_id": name, **found})
        files["standing"] += [] if gone else [{"_id": name, "digest": f"d{version}"}]
    files["seen"] = [{"at": 5.0, "before": 4.0, "life": 0, "index": "i", "changed": {"page:e1": 4}}]
    files["timeline"] = [{"at": 60.0, "calm": False, "connections": 9, "workers": {"w1.1": [90, 20]}, "stuck": 0}]
    files["acts"] = [{"kind": "kill_9", "bit": True, "told": "bit", "began": 5.0, "numbers": {}}]
    files["samples"] = samples(lambda n: 80.0)
    return ledger, files


def broken(folder: Path) -> tuple[str, list[str], list[str]]:
    _, verdict, opinion = judged(folder)
    assert opinion.agrees, str(opinion)
    rules = [one.name for one in verdict.findings if not one.ok]
    return verdict.word, rules, opinion.second


def test_a_good_history_passes_and_both_judges_agree(tmp_path: Path) -> None:
    folder = stored(tmp_path / "run")
    assert broken(folder) == ("PASS", [], [])
    _, verdict, _ = judged(folder)
    assert (verdict.counts["acknowledged"], verdict.counts["lost"]) == (2 * DOCUMENTS, 0)
    assert not list(folder.glob("slice-*"))


def lost_write(ledger: list[LedgerEntry], files: Files) -> None:
    files["steps"] = [row for row in files["steps"] if row["event_id"] != ledger[100].id]


def stale_document(ledger: list[LedgerEntry], files: Files) -> None:
    files["documents"][7] |= {"version": 15, "digest": "d15"}


def deleted_is_back(ledger: list[LedgerEntry], files: Files) -> None:
    files["documents"][5] |= {"found": True, "version": 11, "digest": "d11"}


def claimed_twice(ledger: list[LedgerEntry], files: Files) -> None:
    files["steps"][0]["old_token"] = files["steps"][0]["new_token"]


@pytest.mark.parametrize(
    ("forge", "rule"),
    [(lost_write, "I1"), (stale_document, "I3"), (deleted_is_back, "I4"), (claimed_twice, "I6")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_both_judges_find_a_forged_line_in_whatever_slice(forge: Any, rule: str, tmp_path: Path) -> None:
    word, rules, second = broken(stored(tmp_path / "run", forge))
    assert word == "FAIL"
    assert rule in {name.split()[0] for name in rules}
    assert rule in {name.split()[0] for name in second}


def test_a_figure_that_grows_fails_the_run_by_its_name(tmp_path: Path) -> None:
    def leak(ledger: list[LedgerEntry], files: Files) -> None:
        files["samples"] = samples(lambda n: 80.0 + n)

    word, rules, _ = broken(stored(tmp_path / "run", leak))
    assert (word, rules) == ("FAIL", ["H2 Flat: w1 private MB"])


def test_an_archive_has_the_figures_and_no_history_to_judge(tmp_path: Path) -> None:
    folder = stored(tmp_path / "run")
    pack(judged(folder)[0], tmp_path / "hours.tar.xz")
    with tarfile.open(tmp_path / "hours.tar.xz") as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    _, verdict, _ = judged(tmp_path / "unpacked")
    assert (verdict.word, verdict.why, len(verdict.samples)) == ("INCONCLUSIVE", "no ledger to check", 100)


def test_an_event_and_its_document_are_in_one_slice_and_no_document_is_refused() -> None:
    producer = hours.SteadyProducer.__new__(hours.SteadyProducer)
    for n in range(1000):
        event = str(producer._event_id(f"page:e{n}"))
        assert slice_of_event(event) == slice_of(f"page:e{n}")
        assert not is_bad(event)
        assert uuid.UUID(event).version == 7


def test_the_ledger_goes_on_in_the_files_of_the_first_part(tmp_path: Path) -> None:
    entry = LedgerEntry(str(uuid.uuid4()), "page", "e1", "upsert", 1, "d", 1.0)
    for n in range(2):
        with hours.SlicedLedger(tmp_path) as sliced:
            sliced.add(entry.unanswered() if n else entry)
    lines = ledger_in(tmp_path, slice_of("page:e1")).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["committed"] for line in lines] == [True, False]


def test_a_stopped_run_goes_on_as_it_was_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command._arguments(["--hours", "2", "--continue", str(tmp_path)])
    assert "state.json" in capsys.readouterr().err
    state = {"seed": 7, "rate": 120.0, "release": "opensearch-2", "seconds": 61.5, "legs": 1, "lives": 2}
    (tmp_path / "state.json").write_text(json.dumps(state), encoding="utf-8")
    asked = command._arguments(["--hours", "2", "--continue", str(tmp_path)])
    assert (asked.seed, asked.rate, asked.release, asked.minutes) == (7, 120.0, "opensearch-2", 120.0)
    run = command._new_run(asked, tmp_path)
    assert isinstance(run, hours.HoursRun)
    assert (run.load.seconds, run.load.minute, run.seconds, run.state["lives"]) == (61.5, 1, 7200.0, 2)


def test_the_clock_of_the_load_stands_while_the_run_is_stopped() -> None:
    clock = hours.Clock(90.0)
    assert (clock.seconds, clock.minute) == (90.0, 1)
    clock.start()
    clock.stop()
    stood = clock.seconds
    assert clock.seconds == stood >= 90.0


@pytest.mark.parametrize("more", [["--wide"], ["--lane", "storm"], ["--source", "kafka"], ["--shrink"]])
def test_hours_have_a_world_of_their_own(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command._arguments(["--hours", "1", *more])
    assert "--hours goes with" in capsys.readouterr().err


def test_the_rate_is_five_hundred_by_default() -> None:
    assert command._arguments(["--hours", "1"]).rate == 500
    assert command._arguments([]).rate == 50
