-- Why:  claims for chosen entity types (groups, kind limits, several indexes, a paused type) walk these twins of the
--       first two indexes; without them a claim would filter other types' rows. Costs the drain two more index entries
--       an event, so only who needs it has it. `abandoned_count < 1` on purpose: a claim that says so can use no other
--       index, whatever the planner thinks of the types.
-- Run:  concurrently
-- Undo:
--   drop index if exists search_outbox_events_type_fresh_idx, search_outbox_events_type_retry_idx;
--   delete from search_outbox_migrations where name = 'by_type';

create index concurrently if not exists search_outbox_events_type_fresh_idx on search_outbox_events (entity_type, seq)
    where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count < 1;

create index concurrently if not exists search_outbox_events_type_retry_idx
    on search_outbox_events (entity_type, next_retry_at)
    where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count < 1;
