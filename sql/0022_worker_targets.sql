-- Why:  all workers of one database share one queue of events, so all must write an entity type to the same index. Each
--       says here which types it claims and where it writes them; who would write one elsewhere does not start.
-- Undo:
--   alter table search_outbox_workers drop column if exists projects;
--   delete from search_outbox_migrations where name = '0022_worker_targets';
-- Roles: those of the table.

alter table search_outbox_workers add column projects json;
