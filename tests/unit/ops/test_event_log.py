"""What the doctor says about the event log, from facts alone."""

from dataclasses import replace

import pytest

from outbox.ops.doctor.event_log import event_log
from outbox.ports import EventLogFacts, Finding, Level, SlotFacts

GB = 1 << 30
SLOT = SlotFacts("pgoutput", True, "reserved", True, 16 << 20, 1024, 4 * GB)
SOUND = EventLogFacts(True, True, True, True, False, "logical", 20 * GB, True, 7, 3, 0, "0", SLOT)


def found(facts: EventLogFacts | None, keep_days: float = 3) -> list[Finding]:
    return [finding for finding in event_log(facts, "outbox_log", keep_days) if finding.level is not Level.OK]


def test_a_sound_log_has_no_finding_but_good_ones() -> None:
    assert found(SOUND) == []
    assert [finding.level for finding in event_log(SOUND, "outbox_log", 3)] == [Level.OK, Level.OK]


@pytest.mark.parametrize(
    ("facts", "level", "words", "remedy"),
    [
        (replace(SOUND, on=False), Level.WARN, "do not write", "kafka-log.md"),
        (replace(SOUND, has_publication=False), Level.BAD, "missing", "create publication"),
        (replace(SOUND, publishes_log=False), Level.BAD, "does not contain", "add table"),
        (replace(SOUND, publishes_inserts=False), Level.BAD, "must publish inserts", "publish_via_partition_root"),
        (replace(SOUND, publishes_more=True), Level.BAD, "nothing else", "publish = 'insert'"),
        (replace(SOUND, wal_level="replica"), Level.BAD, "wal_level is replica", "restart"),
        (replace(SOUND, days_ahead=1), Level.WARN, "1 days ahead", "search_outbox_log_days"),
        (replace(SOUND, days_ahead=None), Level.WARN, "no partition", "outbox run"),
        (replace(SOUND, days_ahead=0, may_make_days=False), Level.WARN, "0 days", "search_outbox_log_grant"),
        (replace(SOUND, in_default=5, in_default_shown="5"), Level.WARN, "rows (5)", "No projector made"),
        (replace(SOUND, oldest_day=9), Level.WARN, "9 days old", "end long ones"),
        (replace(SOUND, slot=None), Level.WARN, "no slot outbox_log", "outbox kafka connector"),
        (replace(SOUND, slot=replace(SLOT, active=False)), Level.BAD, "not in use", "--check"),
        (replace(SOUND, slot=replace(SLOT, kept_bytes=2 * GB)), Level.WARN, "keeps 2 GB", "heartbeat"),
        (replace(SOUND, slot=replace(SLOT, wal_status="lost")), Level.BAD, "is lost", "outbox verify"),
        (replace(SOUND, slot=replace(SLOT, wal_status="unreserved")), Level.BAD, "next checkpoint", "raise"),
        (replace(SOUND, slot=replace(SLOT, plugin="wal2json")), Level.BAD, "wal2json", "OUTBOX_EVENT_LOG_SLOT"),
        (replace(SOUND, slot=replace(SLOT, ours=False)), Level.BAD, "another database", "OUTBOX_EVENT_LOG_SLOT"),
        (replace(SOUND, most_kept_bytes=None), Level.WARN, "no limit", "max_slot_wal_keep_size"),
    ],
)
def test_each_fault_has_its_finding_and_a_remedy(facts: EventLogFacts, level: Level, words: str, remedy: str) -> None:
    (finding,) = found(facts)
    assert finding.level is level
    assert words in finding.detail
    assert remedy in finding.remedy
