-- Why:  a connector may read a commit before snapshots see it, with a synchronous standby for as long as that is down. So
--       where the event log is, its records name their transaction, and a projector waits until it is visible.
-- Undo:
--   do $undo$
--   begin
--       if to_regprocedure('search_outbox_log_fill()') is not null then
--           execute replace(pg_get_functiondef('search_outbox_log_fill()'::regprocedure),
--                           ', pg_current_xact_id()::text::bigint)', ')');
--       end if;
--   end $undo$;
--   delete from search_outbox_migrations where name = '0023_log_transaction';
-- Roles: none.

do $do$
declare
    was text := pg_get_functiondef(to_regprocedure('search_outbox_log_fill()'));
begin
    if was is not null and strpos(was, 'pg_current_xact_id') = 0 then
        execute replace(was, 'new.has_payload, new.traceparent)',
                        'new.has_payload, new.traceparent, pg_current_xact_id()::text::bigint)');
    end if;
end
$do$;
