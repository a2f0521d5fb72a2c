-- Why:  commands and the console replay in processes of their own, whose counters nobody scrapes. What a batch has moved
--       and how it ended is told by the next daemon that looks, once over all of them: these columns say up to where.
-- Undo:
--   drop index if exists search_outbox_replays_untold_idx;
--   alter table search_outbox_replays drop column if exists told_replayed, drop column if exists told_skipped,
--       drop column if exists told_over;
--   delete from search_outbox_migrations where name = '0023_replays_told';

alter table search_outbox_replays
    add column told_replayed int not null default 0,
    add column told_skipped int not null default 0,
    add column told_over boolean not null default false;

-- The `tell` query, once a second a daemon: it must cost nothing while nobody replays.
create index search_outbox_replays_untold_idx on search_outbox_replays (created_at) where not told_over;
