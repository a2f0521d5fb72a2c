-- Why:  one index a scan, each partial on columns that a claim of a fresh row leaves alone, so that claims stay HOT.
--       Nothing here may index or filter on status, owner, attempts or the lease. The map index -> query is in
--       sql/README.md. Built concurrently, because an adopted table has producers at work.
-- Run:  concurrently
-- Undo:
--   drop index if exists search_outbox_events_fresh_idx, search_outbox_events_retry_idx,
--       search_outbox_events_suspect_idx, search_outbox_events_failed_idx, search_outbox_events_processed_idx,
--       search_outbox_events_delete_idx, search_outbox_events_idempotency_idx;
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

create index concurrently if not exists search_outbox_events_delete_idx
    on search_outbox_events (entity_type, entity_id, event_version) where op = 'delete';

create unique index concurrently if not exists search_outbox_events_idempotency_idx
    on search_outbox_events (idempotency_key) where idempotency_key is not null;
