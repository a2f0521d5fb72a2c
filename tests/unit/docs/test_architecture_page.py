"""ARCHITECTURE.md names rooms, modules and paths of files that exist, and each of its invariants has a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "outbox"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w/.]+)`")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its first two lines."""
    part = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")][2:]


def exists(place: Path) -> bool:
    return place.exists() or place.with_suffix(".py").is_file()


def test_every_room_and_every_module_of_a_room_exists() -> None:
    named = [
        (room, name) for room, owns, *_ in rows("The rooms") for name in (*NAMED.findall(room), *NAMED.findall(owns))
    ]
    assert len(named) > 40
    missing = [
        (room, name)
        for room, name in named
        if not any(exists(place / name) for place in (ROOT, *(ROOT / one for one in NAMED.findall(room))))
    ]
    assert missing == []


def test_every_file_of_the_four_paths_exists() -> None:
    named = [name for _, files in rows("Paths through the files") for name in NAMED.findall(files)]
    assert len(named) > 30
    assert [name for name in named if not exists(PACKAGE / name)] == []


def test_every_file_that_a_diagram_or_a_sentence_names_exists() -> None:
    named = re.findall(r"(?<![\w/])((?:\w+/)+\w+\.(?:py|sql|html))", PAGE)
    assert len(named) > 10
    places = (ROOT, PACKAGE, PACKAGE / "store")
    assert [name for name in named if not any((place / name).is_file() for place in places)] == []


# Which tests hold which invariant, by its first words; written as file::test without `test_`, as seeded bugs are.
HELD = {
    "No event is sent before what keeps its entity type": (
        "integration/test_one_truth.py::of_two_first_events_in_two_workers_one_declares_and_the_other_is_not_sent",
        "integration/test_one_truth.py::a_batch_under_a_declaration_that_changed_meanwhile_is_done_again",
    ),
    "No document is written to a place with a routing": (
        "integration/test_places.py::a_place_is_noted_before_the_request_and_forgotten_an_hour_after_its_delete",
        "integration/test_places.py::a_worker_that_slept_and_then_died_is_cleaned_up_after",
    ),
    "No page of refreshes is written without the cursor": (
        "integration/test_fanout_pages.py::a_worker_killed_between_pages_loses_none_and_doubles_none",
        "integration/test_fanout_pages.py::a_worker_whose_fanout_was_taken_by_another_writes_nothing_more",
    ),
    "No refresh is done because a version ahead": (
        "integration/test_one_truth.py::a_refresh_that_meets_a_version_ahead_each_time_is_released_and_never_done",
    ),
    "No document's text depends on the session": (
        "integration/test_sessions.py::settings_of_roles_and_databases_change_no_document",
    ),
    "No version that a refresh has drawn": (
        "integration/test_version_sequence.py::no_number_is_handed_out_twice_over_crashes_of_postgresql",
    ),
    "No event is marked done before": (
        "unit/fuzz/test_replies.py::a_row_is_done_only_by_its_own_items_status",
        "acceptance/test_crash_points.py::kill_9_at_this_point_loses_nothing_and_doubles_nothing",
    ),
    "No statement moves a row out of `processing`": (
        "integration/test_fencing.py::every_statement_that_moves_a_row_out_of_processing_has_the_token",
        "integration/test_fencing.py::no_query_changes_who_holds_a_row_without_the_token",
    ),
    "No transaction is open while": (
        "integration/test_worker_manners.py::no_transaction_is_open_while_the_sink_is_asked",
        "integration/test_exports.py::no_transaction_is_open_while_a_client_reads_an_export",
    ),
    "No offset of Kafka is committed": (
        "unit/kafka/test_ledger.py::every_record_below_what_may_be_committed_has_its_answer",
        "unit/kafka/test_events.py::no_offset_may_be_committed_below_which_a_record_is_neither_answered_nor_stored",
        "integration/test_stream_rows.py::an_offset_waits_for_its_row_while_the_database_is_down",
    ),
    "No offset is taken for a version": (
        "unit/kafka/test_record.py::a_record_is_an_event_with_its_own_version_and_its_bytes",
    ),
    "No chore fails `/healthz`": (
        "unit/telemetry/test_health.py::a_chore_that_hangs_restarts_no_daemon_and_is_named",
        "acceptance/test_frozen_database.py::liveness_does_not_depend_on_a_database_that_answers_nothing",
    ),
    "No server is asked while the worker": (
        "acceptance/test_terminated_starts.py::no_start_ends_with_an_error_while_its_connections_are_terminated",
    ),
    "No settle, renewal or release waits": (
        "integration/test_neighbours.py::a_locked_row_holds_up_neither_its_batch_nor_the_heartbeat_nor_a_shutdown",
    ),
    "No verdict that the database refuses": (
        "integration/test_neighbours.py::a_verdict_that_cannot_be_written_is_isolated_and_fails_in_the_end",
    ),
    "No unexpected error of ours": (
        "integration/test_neighbours.py::an_unexpected_error_of_ours_releases_its_batch_at_once_wherever_it_happens",
        "integration/test_stream_rows.py::a_batch_that_ended_in_an_error_is_claimed_as_suspects",
    ),
    "No state is left in a database session": (
        "integration/test_pgbouncer.py::two_daemons_project_behind_it_and_leave_nothing_in_a_session",
        "integration/test_pgbouncer.py::the_pool_leaves_nothing_in_a_session",
    ),
    "No plan is kept": (
        "integration/test_grown_table.py::no_plan_of_the_empty_table_is_used_once_it_has_grown",
        "integration/test_grown_table.py::a_column_may_get_another_type_under_a_busy_daemon",
        "integration/test_grown_table.py::each_statement_of_a_batch_is_planned_once",
    ),
    "No index uses a column": ("integration/test_hot_path_guards.py::the_daemons_own_claims_are_hot_updates",),
    "No claim or reclaim judges attempts": (
        "integration/test_reclaim.py::neither_a_claim_nor_a_reclaim_judges_attempts",
    ),
    "No event is retried inside the sink": (
        "integration/test_no_retries.py::whatever_is_answered_is_sent_again_only_to_find_the_document_at_fault",
        "integration/test_no_retries.py::with_two_nodes_each_gets_a_batch_once_at_most",
    ),
    "No document is written while the addresses": (
        "integration/test_several_nodes.py::nodes_of_different_clusters_get_nothing_at_all_and_are_named",
    ),
    "No wall clock of a worker": (
        "integration/test_worker_manners.py::a_worker_whose_clock_is_an_hour_off_leases_and_retries_by_the_databases_clock",
    ),
    "No estimate of how much of a lease is left": (
        "integration/test_daemon_clocks.py::every_part_that_counts_a_lease_has_the_boot_clock",
        "integration/test_daemon_clocks.py::a_daemon_whose_machine_slept_after_its_claim_sends_nothing_of_it",
    ),
    "No payload is parsed": ("integration/test_bulk.py::a_payload_arrives_byte_for_byte",),
    "No value from a row becomes": (
        "unit/telemetry/test_metrics.py::no_fact_adds_a_series",
        "unit/store/test_composed_sql.py::text_enters_a_statement_only_where_no_row_has_a_say_in_it",
        "integration/test_row_values.py::hostile_values_reach_no_statement_and_make_no_index",
    ),
    "No prometheus, structlog or psycopg import": (
        "unit/daemon/test_room.py::a_module_of_the_loop_imports_neither_metrics_nor_logs_nor_a_driver",
    ),
    "No payload, secret or connection string": (
        "acceptance/test_canaries.py::a_daemon_among_refused_documents_and_a_failing_webhook_says_nothing_secret",
        "unit/fuzz/test_redaction.py::a_planted_secret_never_reaches_the_log",
    ),
    "No scan of done rows": (
        "integration/test_browse_plans.py::a_page_touches_rows_in_proportion_to_itself",
        "integration/test_browse_plans.py::status_of_a_large_table_is_one_quick_query",
    ),
    "No update or delete of an audit row": (
        "integration/test_audit.py::rows_cannot_be_changed_or_removed",
        "integration/test_roles.py::an_operator_cannot_erase_the_trail",
    ),
}


def invariants() -> list[str]:
    part = PAGE.split("## Invariants\n", 1)[1].split("\n## ", 1)[0]
    return [" ".join(bullet.split()) for bullet in re.split(r"^- ", part, flags=re.MULTILINE)[1:]]


def test_every_invariant_has_a_test() -> None:
    assert len(invariants()) > 20
    assert [each for each in invariants() if sum(each.startswith(first) for first in HELD) != 1] == []
    assert [first for first in HELD if not any(each.startswith(first) for each in invariants())] == []


@pytest.mark.parametrize("test", [test for tests in HELD.values() for test in tests])
def test_a_test_that_holds_an_invariant_exists(test: str) -> None:
    file, _, name = test.partition("::")
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert re.search(rf"^def test_{name}\(", text, re.MULTILINE)
