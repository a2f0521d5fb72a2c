-- Why:  a page of a fan-out is written only while few of its refreshes are open, and people ask which fan-outs are: both
--       are counted from indexes that hold nothing else. An event that is neither pays nothing for them, and no column
--       here changes at a claim.
-- Run:  concurrently
-- Undo:
--   drop index if exists search_outbox_events_fanned_idx, search_outbox_events_fanout_idx;
--   delete from search_outbox_migrations where name = '0018_fanout_indexes';

create index concurrently if not exists search_outbox_events_fanned_idx on search_outbox_events (fanout_id)
    where fanout_id is not null and processed_at is null and failed_at is null;

create index concurrently if not exists search_outbox_events_fanout_idx on search_outbox_events (seq)
    where op = 'fanout' and processed_at is null;
