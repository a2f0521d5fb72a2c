-- Why:  `outbox status` and the console say which server each worker writes to (Elasticsearch or OpenSearch, and its
--       version); only the worker may know, because not everyone who reads the queue reaches that server.
-- Undo:
--   alter table search_outbox_workers drop column if exists server;
--   delete from search_outbox_migrations where name = '0014_worker_server';
-- Roles: those of the table.

alter table search_outbox_workers add column server text;
