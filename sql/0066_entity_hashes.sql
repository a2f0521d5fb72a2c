-- Why:  a btree entry holds at most 2,704 bytes, and an id may be longer: a token of 4 KB is accepted by INSERT, and then
--       the settle that would fail its event broke on the index, with its whole batch, for ever; so did its replay and its
--       discard. Ids are found by their hash now, whatever their length. Deletes are asked for by version too, so theirs is
--       a btree over the hash; the others are hash indexes, which serve the queries as they stand.
--       Smaller than before, and a claim still changes none of their columns.
--       Daemons of the last release work on; their looks at newer deletes are slow until they are restarted.
-- Run:  concurrently
-- Undo (an id of over 2,704 bytes that does not compress makes it fail):
--   create index if not exists search_outbox_events_delete_idx
--       on search_outbox_events (entity_type, entity_id, event_version) where op = 'delete';
--   create index if not exists search_outbox_events_failed_entity_idx
--       on search_outbox_events (entity_type, entity_id, event_version) where failed_at is not null;
--   create index if not exists search_outbox_audit_entity_idx
--       on search_outbox_audit (entity_type, entity_id) where entity_id is not null;
--   create index if not exists search_outbox_discards_entity_idx on search_outbox_discards (entity_type, entity_id);
--   drop index if exists search_outbox_events_delete_hash_idx, search_outbox_events_failed_id_idx,
--       search_outbox_audit_entity_id_idx, search_outbox_discards_entity_id_idx;
--   delete from search_outbox_migrations where name = '0066_entity_hashes';

create index concurrently if not exists search_outbox_events_delete_hash_idx
    on search_outbox_events (hashtextextended(entity_id::text, 0), event_version) where op = 'delete';

create index concurrently if not exists search_outbox_events_failed_id_idx
    on search_outbox_events using hash (entity_id) where failed_at is not null;

create index concurrently if not exists search_outbox_audit_entity_id_idx
    on search_outbox_audit using hash (entity_id) where entity_id is not null;

create index concurrently if not exists search_outbox_discards_entity_id_idx
    on search_outbox_discards using hash (entity_id);

drop index concurrently if exists search_outbox_events_delete_idx;

drop index concurrently if exists search_outbox_events_failed_entity_idx;

drop index concurrently if exists search_outbox_audit_entity_idx;

drop index concurrently if exists search_outbox_discards_entity_idx;
