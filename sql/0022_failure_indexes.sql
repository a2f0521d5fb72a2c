-- Why:  people look at failures by kind and by entity. Both indexes hold failed rows only and no column that a claim
--       or a settle of a fresh row changes: claims stay HOT, and an event that never fails pays nothing.
--       failure: groups, statistics, one group's list (index-only where vacuum has been); failed_entity: an entity's
--       failed events, and the pruning of its deletes.
-- Run:  concurrently
-- Undo:
--   drop index if exists search_outbox_events_failure_idx, search_outbox_events_failed_entity_idx;
--   delete from search_outbox_migrations where name = '0022_failure_indexes';

create index concurrently if not exists search_outbox_events_failure_idx
    on search_outbox_events (error_fingerprint, failed_at)
    include (entity_type, error_reason, error_code, dead_reason, replay_count)
    where failed_at is not null;

create index concurrently if not exists search_outbox_events_failed_entity_idx
    on search_outbox_events (entity_type, entity_id, event_version)
    where failed_at is not null;
