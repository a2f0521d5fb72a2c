-- Why:  wakes daemons that LISTEN on `search_outbox`, for latency below the poll interval. A notifying commit takes a
--       database-wide lock: 14 % fewer single-row commits with 4 clients, 46 % with 32 (measured), so it is optional.
--       For each statement, not each row, and only INSERT: retries and replays are found by polling.
-- Undo:
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
