-- Why:  several databases may feed one cluster of Kafka. A projector that reads a refresh of another database finds no such
--       row in its own view, and would delete the document. So each database has an id, which the records of its event
--       log name, and a projector refuses refreshes of another one. A copy of a database has the same id until this
--       migration is undone and applied again there.
-- Undo:
--   do $undo$
--   begin
--       if to_regprocedure('search_outbox_log_fill()') is not null then
--           execute regexp_replace(pg_get_functiondef('search_outbox_log_fill()'::regprocedure),
--                                  ', [^ ]*search_outbox_database\(\)\)', ')');
--       end if;
--   end $undo$;
--   drop function if exists search_outbox_database();
--   delete from search_outbox_migrations where name = '0025_database_id';
-- Roles: EXECUTE for everybody.

-- PostgreSQL inlines it, so it costs no read.
do $do$
begin
    if to_regprocedure('search_outbox_database()') is null then
        execute format('create function search_outbox_database() returns text language sql immutable parallel safe as %L',
                       format('select %L', left(replace(gen_random_uuid()::text, '-', ''), 12)));
    end if;
end
$do$;

do $do$
declare
    was text := pg_get_functiondef(to_regprocedure('search_outbox_log_fill()'));
begin
    if was is not null and strpos(was, 'search_outbox_database') = 0 then
        execute replace(was, 'pg_current_xact_id()::text::bigint)',
                        format('pg_current_xact_id()::text::bigint, %I.search_outbox_database())', current_schema()));
    end if;
end
$do$;
