-- Why:  all workers of one database share one queue of events, so all must write an entity type to the same index. Each
--       says here which types it claims and where it writes them; who would write one elsewhere does not start.
--       A worker that reads Kafka says under which id it reads its topic: Kafka deletes a group's offsets with the topic,
--       so a topic that was made anew while no worker ran would be taken for a new group's.
-- Undo:
--   alter table search_outbox_workers drop column if exists projects, drop column if exists stream,
--       drop column if exists topic_id;
--   delete from search_outbox_migrations where name = '0022_worker_targets';
-- Roles: those of the table.

alter table search_outbox_workers add column projects json, add column stream text, add column topic_id text;
