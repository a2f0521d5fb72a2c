-- Why:  wakes daemons that LISTEN on `search_outbox`, for latency below the poll interval. A notifying commit takes a
--       database-wide lock: 14 % fewer single-row commits with 4 clients, 46 % with 32 (measured), so it is optional.
--       For each statement, not each row, and only INSERT: retries and replays are found by polling.
--       And wakes those who wait for an event to be settled (`Outbox.wait`): a settle deletes the lease of its batch, so
--       this is one notification per batch.
-- Undo:
--   drop trigger if exists search_outbox_settled on search_outbox_leases;
--   drop function if exists search_outbox_settled();
--   drop trigger if exists search_outbox_wake on search_outbox_events;
--   drop function if exists search_outbox_wake();
--   delete from search_outbox_migrations where name = 'notify';

create or replace function search_outbox_wake() returns trigger
language plpgsql as $fn$
begin
    perform pg_catalog.pg_notify('search_outbox', '');
    return null;
end
$fn$;

create or replace trigger search_outbox_wake
    after insert on search_outbox_events
    for each statement
    execute function search_outbox_wake();

create or replace function search_outbox_settled() returns trigger
language plpgsql as $fn$
begin
    perform pg_catalog.pg_notify('search_outbox_settled', '');
    return null;
end
$fn$;

create or replace trigger search_outbox_settled
    after delete on search_outbox_leases
    for each statement
    execute function search_outbox_settled();
