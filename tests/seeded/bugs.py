"""The table of seeded bugs: what each is, and the checks that must find it. `NAME.patch` beside this plants it.

M1 to M16 are the gaps of the nearest prior art (docs/reliability.md), M17 and M18 the two that versions invite, M19 to
M23 those that documents from a view invite, M24 to M27 those that offsets invite,
M28 one that parts of a large job invite, M29 to M35 those that declared types and places invite, M36 to M38 those that
fan-outs invite, M40 to M44 five that Kafka's exceptions invite, M45 to M47 three that fan-outs and derived
attachments invite, M48 one that tables of other owners invite, M49 one that several databases invite, M50 to M59 are
breaks that reviews reproduced, M60 one that the failover lane found.
"""

from pathlib import Path
from typing import Final, NamedTuple


class Bug(NamedTuple):
    """Each of the checks, written as file::test without `test_`, must fail by itself."""

    name: str
    what: str
    checks: tuple[str, ...]

    @property
    def patch(self) -> Path:
        return Path(__file__).with_name(f"{self.name}.patch")

    @property
    def nodes(self) -> list[str]:
        """As pytest takes them."""
        return [f"tests/{check.replace('::', '::test_')}" for check in self.checks]


_MANNERS: Final = "integration/test_worker_manners.py::"
_REFRESH: Final = "integration/test_refresh.py::"
_RECORDS: Final = "unit/kafka/test_events.py::"
_TRUTH: Final = "integration/test_one_truth.py::"
_PLACES: Final = "integration/test_places.py::"
_ROWS: Final = "integration/test_stream_rows.py::"
_MOVED: Final = "integration/test_moved_database.py::"
_PARTS: Final = "integration/test_rebuild_parts.py::"

BUGS: Final = (
    Bug(
        "M1",
        "the owner's name is the fence instead of a token per claim",
        (_MANNERS + "a_worker_that_claims_its_row_again_is_not_settled_by_its_earlier_self",),
    ),
    Bug(
        "M2",
        "the worker's wall clock decides how long a lease lasts",
        (_MANNERS + "a_worker_whose_clock_is_an_hour_off_leases_and_retries_by_the_databases_clock",),
    ),
    Bug(
        "M3",
        "documents are written without a version",
        (
            "unit/fuzz/test_encoding.py::exactly_these_actions_are_seen",
            "contract/test_sink.py::the_highest_version_wins_in_whatever_order_they_arrive",
        ),
    ),
    Bug(
        "M4",
        "attempts are counted on handled failures only, and a reclaim counts nothing",
        (
            "contract/test_event_store.py::a_claim_takes_the_oldest_pending_rows_once_and_counts_the_attempt",
            "contract/test_event_store.py::the_sixth_death_of_its_worker_fails_a_row",
        ),
    ),
    Bug(
        "M5",
        "every 4xx is the document's fault and final: 401, 404 of the index and 413 too",
        ("unit/policy/test_classify.py::a_refused_item",),
    ),
    Bug(
        "M6",
        "a settle counts as success without checking how many rows it changed",
        ("unit/daemon/test_projector.py::rows_that_were_lost_are_counted_once_and_in_no_other_count",),
    ),
    Bug(
        "M7",
        "the lease is renewed once before the bulk request and not while it runs",
        ("unit/daemon/test_lease.py::a_lease_is_renewed_once_a_quarter_of_it_is_gone",),
    ),
    Bug(
        "M8",
        "a transaction stays open from the claim to the settle, across the HTTP request",
        (_MANNERS + "no_transaction_is_open_while_the_sink_is_asked",),
    ),
    Bug(
        "M9",
        "DATABASE_URL is printed at the start, password and all",
        ("acceptance/test_least_privilege.py::a_daemon_with_too_few_rights_says_which_and_touches_nothing",),
    ),
    Bug(
        "M10",
        "the limit of a replay is printed and not applied",
        ("integration/test_replay.py::the_limit_holds_in_sql_and_the_longest_failed_come_first",),
    ),
    Bug(
        "M11",
        "a replay leaves no audit row an event, only the last replay's columns",
        ("integration/test_replay.py::a_replay_clears_the_failure_counts_itself_and_says_who_and_why",),
    ),
    Bug(
        "M12",
        "Elasticsearch's reason is stored as it came, values of the document and all",
        (
            "unit/policy/test_redact.py::the_value_goes_and_the_name_stays",
            "integration/test_bad_input.py::no_value_of_a_document_is_stored_or_reported_with_its_error",
        ),
    ),
    Bug(
        "M13",
        "a dictionary of locks grows with every entity that was ever seen",
        ("unit/daemon/test_bounded_memory.py::no_container_of_a_process_grows_with_the_entities_it_has_met",),
    ),
    Bug(
        "M14",
        "a tenth of jitter: thousands of rows come back at the same moment",
        ("unit/policy/test_backoff.py::the_earliest_and_the_latest_draw_are_half_of_the_curve_apart",),
    ),
    Bug(
        "M15",
        "every poll counts the table several times",
        (_MANNERS + "an_idle_poll_is_one_statement_and_a_batch_is_two",),
    ),
    Bug(
        "M16",
        "a value of a row becomes a metric's label",
        ("unit/telemetry/test_metrics.py::no_fact_adds_a_series",),
    ),
    Bug(
        "M17",
        "tombstones are forgotten: an upsert out of order is not checked against newer deletes",
        (
            "integration/test_newer_deletes.py::an_upsert_that_was_reclaimed_does_not_bring_back_what_a_newer_delete_removed",
        ),
    ),
    Bug(
        "M18",
        "a delete of a type that the view keeps goes out under its own version, without a lookup",
        ("integration/test_documents.py::every_event_of_a_type_that_the_view_keeps_is_a_lookup_under_a_drawn_version",),
    ),
    Bug(
        "M19",
        "the version of a lookup is drawn by the statement that reads, whose snapshot is older",
        (_REFRESH + "whoever_is_overtaken_in_the_middle_of_its_read_has_the_lower_version",),
    ),
    Bug(
        "M20",
        "the version of a lookup is drawn after the read",
        (_REFRESH + "whoever_is_overtaken_right_after_its_read_has_the_lower_version",),
    ),
    Bug(
        "M21",
        "the version of a lookup is the one that the event got when it was written",
        (_REFRESH + "two_transactions_that_commit_in_the_other_order_than_they_were_written_lose_no_comment",),
    ),
    Bug(
        "M22",
        "a worker that slept between its read and its write does not read and write again",
        (_REFRESH + "a_worker_that_slept_between_its_read_and_its_write_reads_and_writes_once_more",),
    ),
    Bug(
        "M23",
        "a drawn version that is refused counts as superseded, without checking whether the index is ahead",
        (_REFRESH + "an_index_that_is_ahead_of_the_database_is_caught_up_with_and_reported",),
    ),
    Bug(
        "M24",
        "an offset is committed before Elasticsearch has answered for its record",
        (
            "unit/kafka/test_ledger.py::every_record_below_what_may_be_committed_has_its_answer",
            _RECORDS + "no_offset_may_be_committed_below_which_a_record_is_neither_answered_nor_stored",
        ),
    ),
    Bug(
        "M25",
        "an offset passes before its record's row is stored",
        (
            _RECORDS + "a_delete_is_a_row_before_its_offset_passes",
            "integration/test_stream_rows.py::an_offset_waits_for_its_row_while_the_database_is_down",
        ),
    ),
    Bug(
        "M26",
        "rows of records have no key by which a repeated store is known",
        (
            "integration/test_stream_rows.py::storing_again_changes_nothing",
            "integration/test_stream_rows.py::records_read_again_after_a_death_store_each_exception_once",
        ),
    ),
    Bug(
        "M27",
        "a record's offset is taken for its version",
        (
            "unit/kafka/test_record.py::a_record_is_an_event_with_its_own_version_and_its_bytes",
            _RECORDS + "the_version_of_a_document_is_its_events",
        ),
    ),
    Bug(
        "M28",
        "the bounds of parts are compared as text: parts overlap and leave keys out",
        (_PARTS + "as_many_documents_are_written_as_there_are_whatever_order_their_texts_have",),
    ),
    Bug(
        "M29",
        "a settle does not ask whether a type was declared otherwise since the claim",
        (_TRUTH + "a_batch_under_a_declaration_that_changed_meanwhile_is_done_again",),
    ),
    Bug(
        "M30",
        "what a first event declares is not read back before the send",
        (_TRUTH + "of_two_first_events_in_two_workers_at_the_same_moment_one_is_not_sent",),
    ),
    Bug(
        "M31",
        "a delete of a type that the view keeps goes under its own version",
        (_REFRESH + "a_delete_of_a_type_that_the_view_keeps_means_what_the_view_says",),
    ),
    Bug(
        "M32",
        "no place is noted before a document with a routing is written",
        (
            _PLACES + "articles_of_a_banned_author_are_not_found_any_more",
            _PLACES + "a_worker_that_dies_between_its_write_and_its_settle_leaves_no_second_document",
            "unit/ops/test_copier.py::a_place_is_noted_before_the_write_and_every_other_is_left_after_it_under_its_own_number",
        ),
    ),
    Bug(
        "M33",
        "pruning does not ask what is declared: of no type anything stays",
        (
            "integration/test_pruning.py::of_any_other_type_each_entitys_newest_done_event_stays_and_a_delete_goes_after_all_older_ones",
            "integration/test_truth_by_type.py::a_rebuild_after_a_prune_has_every_document_that_was_there",
        ),
    ),
    Bug(
        "M34",
        "who is gone counts as deleted when the request failed",
        (_PLACES + "deletes_of_routed_documents_wait_while_the_search_server_does_not_answer",),
    ),
    Bug(
        "M35",
        "an attachment does not declare that the view keeps its type",
        ("integration/test_row_documents.py::the_view_keeps_an_attached_type_before_its_first_event",),
    ),
    Bug(
        "M36",
        "a fan-out that has begun is merged with a later change of its key",
        ("integration/test_fanout.py::one_that_has_begun_is_not_merged_with_a_later_change",),
    ),
    Bug(
        "M37",
        "a page of a fan-out is written by who no longer holds it, or from another cursor",
        ("integration/test_fanout.py::a_page_is_written_only_by_who_holds_the_fanout_as_it_was_read",),
    ),
    Bug(
        "M38",
        "ids that a worker has found ahead are used after another one went on with the fan-out",
        ("integration/test_fanout.py::what_one_worker_has_found_is_worth_nothing_once_another_has_gone_on",),
    ),
    Bug(
        "M40",
        "workers of one database may write an entity type to different indexes",
        (
            "unit/policy/test_projection.py::there_is_a_conflict_exactly_where_a_type_has_two_indexes",
            "unit/daemon/test_enrolment.py::a_worker_that_writes_elsewhere_and_lives_refuses_the_start_which_leaves_nothing_behind",
            _ROWS + "a_worker_of_another_group_refuses_to_start_while_exceptions_of_this_one_wait",
        ),
    ),
    Bug(
        "M41",
        "a record that is to be retried passes by a row that is done",
        (
            _ROWS + "a_record_passes_only_with_a_row_that_is_open_or_that_a_person_has",
            _ROWS + "an_index_that_is_lost_is_filled_again_from_the_topic_although_it_refuses_some",
        ),
    ),
    Bug(
        "M42",
        "a lookup does not wait until the transaction of its record is visible",
        (_RECORDS + "a_lookup_waits_for_its_transaction_and_what_brings_its_payload_does_not",),
    ),
    Bug(
        "M43",
        "the offset of a topic that was deleted is taken for one of the topic that was made anew",
        ("unit/kafka/test_start.py::what_is_gone_is_a_gap_and_a_topic_that_was_made_anew_is_read_from_its_beginning",),
    ),
    Bug(
        "M44",
        "a partition does not rest, however many of its events are open",
        (_RECORDS + "a_partition_with_many_open_events_rests_and_the_topic_keeps_what_follows",),
    ),
    Bug(
        "M45",
        "the query of --via runs in the writer's transaction",
        ("integration/test_fanout.py::what_was_linked_before_the_commit_is_found_after_it",),
    ),
    Bug(
        "M46",
        "an update refreshes by its new values only",
        (
            "integration/test_attach_from_view.py::no_change_of_a_table_is_missed",
            "integration/test_fanout_races.py::a_change_of_the_key_refreshes_by_the_old_and_by_the_new_one",
        ),
    ),
    Bug(
        "M47",
        "a derived attachment leaves out a column that the view reads",
        ("integration/test_attach_from_view.py::no_change_of_a_table_is_missed",),
    ),
    Bug(
        "M48",
        "what is read is committed, with what a table's owner has done to the session",
        ("integration/test_sessions.py::what_is_read_leaves_no_setting_and_no_notification_behind",),
    ),
    Bug(
        "M49",
        "a refresh of another database is done by the projector's own view",
        (f"{_RECORDS}a_refresh_of_another_database_fails_and_deletes_nothing",),
    ),
    Bug(
        "M50",
        "a done delete is pruned while an older event of its entity is there",
        ("integration/test_pruning.py::a_done_delete_stays_while_an_older_event_of_its_entity_is_there",),
    ),
    Bug(
        "M51",
        "one brake for all types holds entities that are gone, and asks for no others of their type",
        (_TRUTH + "the_brake_lets_go_by_itself_when_others_of_the_type_are_found",),
    ),
    Bug(
        "M52",
        "a worker that was started before the view never sees it",
        (_TRUTH + "the_first_event_of_a_type_declares_it_by_what_its_document_is_written_from",),
    ),
    Bug(
        "M53",
        "documents are read in the time zone of a shell",
        ("integration/test_sessions.py::settings_of_roles_and_databases_change_no_document",),
    ),
    Bug(
        "M54",
        "an event with a payload is written although the view keeps its type",
        (_TRUTH + "an_event_of_the_other_sort_fails_with_its_remedy_and_holds_up_nobody",),
    ),
    Bug(
        "M55",
        "a materialised view is read like any other",
        (
            "integration/test_documents.py::a_materialised_view_is_not_read_and_its_events_wait_until_it_is_an_ordinary_one",
            "integration/test_documents.py::a_view_that_becomes_materialised_while_a_daemon_runs_is_not_read_any_more",
        ),
    ),
    Bug(
        "M56",
        "documents that only the index has are not found",
        ("integration/test_verify.py::a_document_added_by_hand_is_an_orphan_for_the_view_and_unknown_for_events",),
    ),
    Bug(
        "M57",
        "ids of char(n) are cast to char(1)",
        ("integration/test_id_types.py::an_id_finds_the_row_of_its_own_text_and_pages_follow_the_types_order",),
    ),
    Bug(
        "M58",
        "a sequence that lags behind its rows is not caught up with",
        (
            _MOVED + "changes_after_the_move_are_projected",
            _MOVED + "a_lane_that_comes_to_another_server_raises_it_before_its_first_claim",
        ),
    ),
    Bug(
        "M59",
        "what writes may connect to a standby, and a connection that it refused to write by is handed out again",
        ("integration/test_several_hosts.py::a_connection_that_is_of_no_use_is_not_handed_out_again",),
    ),
    Bug(
        "M60",
        "a change after a move of the database keeps its low version unless a done event of its entity is there",
        (_MOVED + "a_change_after_the_move_wins_over_one_that_was_open_then_or_whose_delete_is_pruned",),
    ),
)
