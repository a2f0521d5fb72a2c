-- Why:  a fan-out that is opened again starts again: its first pages were read long ago. A replay opens one, and a person
--       who writes `status='pending'`: so it is done here, for both, and nobody needs the right to write a cursor for it.
--       The WHEN clause is false for a row without progress, which is every row that is no fan-out.
-- Undo:
--   drop trigger if exists search_outbox_fanout_restart on search_outbox_events;
--   drop function if exists search_outbox_fanout_restart();
--   delete from search_outbox_migrations where name = '0019_fanout_restart';

create or replace function search_outbox_fanout_restart() returns trigger
language plpgsql set search_path from current as $fn$
begin
    new.fanout_cursor := null;
    new.fanout_written := null;
    return new;
end
$fn$;

create or replace trigger search_outbox_fanout_restart
    before update on search_outbox_events
    for each row
    when ((new.fanout_cursor is not null or new.fanout_written is not null) and new.status = 'pending'
          and (old.failed_at is not null or old.processed_at is not null))
    execute function search_outbox_fanout_restart();

do $do$
begin
    execute format('alter function search_outbox_fanout_restart() set search_path = pg_catalog, %I, pg_temp', current_schema());
end
$do$;
