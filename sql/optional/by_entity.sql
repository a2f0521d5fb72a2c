-- Why:  finding an entity's done events (list, show and the console by entity id; the newest version of an entity).
--       A full index over all rows: 12 us per event at settle (measured), so only who asks for it pays.
-- Run:  concurrently
-- Undo:
--   drop index if exists search_outbox_events_entity_idx;
--   delete from search_outbox_migrations where name = 'by_entity';

create index concurrently if not exists search_outbox_events_entity_idx
    on search_outbox_events (entity_type, entity_id, event_version);
