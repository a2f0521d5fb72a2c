-- Why:  one index per scan, each partial on columns that a claim of a fresh row leaves alone, so that claims stay HOT.
--       Nothing here may index or filter on status, owner, attempts or the lease. The map index -> query is in
--       sql/README.md. Built concurrently, because an adopted table has producers at work.
--       Ids are found by their hash, whatever their length: a btree entry holds at most 2,704 bytes, and with a longer
--       id (a token of 4 KB, which INSERT accepts) the settle that would fail its event broke on the index, with its
--       whole batch, for ever; so did its replay and its discard. Deletes are searched by version too, so theirs is a
--       btree over the hash.
--       failure: groups, statistics and one group's list (index-only where vacuum has been). It and failed_id, for an
--       entity's failed events and the pruning of its deletes, hold failed rows only: an event that never fails pays
--       nothing for them.
-- Run:  concurrently
-- Undo:
--   drop index if exists search_outbox_events_fresh_idx, search_outbox_events_retry_idx,
--       search_outbox_events_suspect_idx, search_outbox_events_failed_idx, search_outbox_events_processed_idx,
--       search_outbox_events_delete_hash_idx, search_outbox_events_idempotency_idx, search_outbox_events_failure_idx,
--       search_outbox_events_failed_id_idx;
--   delete from search_outbox_migrations where name = '0005_event_indexes';

create index concurrently if not exists search_outbox_events_fresh_idx on search_outbox_events (seq)
    where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0;

create index concurrently if not exists search_outbox_events_retry_idx on search_outbox_events (next_retry_at)
    where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count = 0;

create index concurrently if not exists search_outbox_events_suspect_idx on search_outbox_events (abandoned_count, seq)
    where processed_at is null and failed_at is null and abandoned_count > 0;

create index concurrently if not exists search_outbox_events_failed_idx on search_outbox_events (failed_at)
    where failed_at is not null;

create index concurrently if not exists search_outbox_events_processed_idx on search_outbox_events (processed_at)
    where processed_at is not null;

create index concurrently if not exists search_outbox_events_delete_hash_idx
    on search_outbox_events (hashtextextended(entity_id::text, 0), event_version) where op = 'delete';

create unique index concurrently if not exists search_outbox_events_idempotency_idx
    on search_outbox_events (idempotency_key) where idempotency_key is not null;

create index concurrently if not exists search_outbox_events_failure_idx
    on search_outbox_events (error_fingerprint, failed_at)
    include (entity_type, error_reason, error_code, dead_reason, replay_count)
    where failed_at is not null;

create index concurrently if not exists search_outbox_events_failed_id_idx
    on search_outbox_events using hash (entity_id) where failed_at is not null;
