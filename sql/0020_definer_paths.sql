-- Why:  functions with the owner's rights searched the outbox's schema for functions: whoever may CREATE there, on
--       databases that began before PostgreSQL 15 everybody, put `hashtextextended(text, integer)` into schema public,
--       which fits a call with a small number better than PostgreSQL's own, and it ran with the owner's rights.
--       `search_outbox_seal` gives such functions the path `pg_catalog, pg_temp` and the full name of each thing of ours in
--       their bodies. (pg_temp is searched for tables only, and stands last; left out, it would be searched first.) The
--       same for functions that these run, and for those by which an administrator grants rights.
--       It takes functions of the tables' own owner alone. Later files that make such a function end with a call of it.
-- Undo:
--   do $undo$
--   declare ours oid;
--   begin
--       for ours in select p.oid from pg_proc p where p.pronamespace = current_schema()::regnamespace
--                      and p.proconfig @> array['search_path=pg_catalog, pg_temp'] and p.proname <> 'search_outbox_seal'
--       loop
--           execute format('alter function %s set search_path = pg_catalog, %I, pg_temp', ours::regprocedure, current_schema());
--           execute replace(pg_get_functiondef(ours), quote_ident(current_schema()) || '.search_', 'search_');
--       end loop;
--   end $undo$;
--   drop function if exists search_outbox_seal(regnamespace);
--   delete from search_outbox_migrations where name = '0020_definer_paths';
-- Roles: the owner's alone.

create or replace function search_outbox_seal(home regnamespace) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $fn$
declare
    owner constant oid := (select relowner from pg_class where relnamespace = home and relname = 'search_outbox_events');
    -- Whole names only: 'search_outbox_log_' is the beginning of a name, and the text before a colon is a message or the
    -- key of a lock, which stays what sessions before this agree on.
    names constant text := '(?<![\w."^]|hashtextextended\('')(search_documents|' || (
        select string_agg(distinct named, '|') from (
            select relname::text as named from pg_class where relnamespace = home
             union all select proname::text from pg_proc where pronamespace = home and prokind = 'f') all_of_it
         where named ~ '^search_outbox_\w+$') || ')(?![\w:]| takes )';
    ours record;
begin
    for ours in
        select p.oid::regprocedure as named, pg_get_functiondef(p.oid) as text
          from pg_proc p
         where p.pronamespace = home and p.proowner = owner and p.prokind = 'f' and p.proname ~ '^search_outbox_'
           and (p.prosecdef or p.proname in ('search_outbox_guard', 'search_outbox_audit_join', 'search_outbox_given_out',
                                             'search_outbox_grant_roles', 'search_outbox_log_grant'))
    loop
        execute regexp_replace(ours.text, names, home::text || '.\1', 'g');
        execute format('alter function %s set search_path = pg_catalog, pg_temp', ours.named);
    end loop;
end
$fn$;
revoke execute on function search_outbox_seal(regnamespace) from public;

select search_outbox_seal(current_schema()::regnamespace);
