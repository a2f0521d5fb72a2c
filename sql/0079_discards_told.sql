-- Why:  the log line `event.discarded` is written by a daemon, whoever has discarded the event: a command, the console or a
--       statement by hand. `told` makes it one daemon, once. What was discarded before is not told again.
-- Undo:
--   do $undo$
--   declare
--       projector constant text := coalesce(nullif(current_setting('search_outbox.role_prefix', true), ''), 'search_outbox')
--           || '_projector';
--   begin
--       execute replace(pg_get_functiondef('search_outbox_grant_roles'::regproc),
--           $o$('projector', 'update (told)', 'search_outbox_discards'),
--               ('projector', 'select, insert', 'search_outbox_audit'),$o$,
--           $n$('projector', 'select, insert', 'search_outbox_audit'),$n$);
--       if to_regrole(quote_ident(projector)) is not null then
--           execute format('revoke update (told) on search_outbox_discards from %I', projector);
--       end if;
--   end $undo$;
--   drop index if exists search_outbox_discards_untold_idx;
--   alter table search_outbox_discards drop column if exists told;
--   delete from search_outbox_migrations where name = '0079_discards_told';
-- Roles: projector UPDATE (told).

-- A constant default is no rewrite: rows that are there read true, new ones are false.
alter table search_outbox_discards add column if not exists told boolean not null default true;
alter table search_outbox_discards alter column told set default false;
create index if not exists search_outbox_discards_untold_idx on search_outbox_discards (at) where not told;

do $do$
declare
    granting text := pg_get_functiondef('search_outbox_grant_roles'::regproc);
    change text[];
    remaining text;
begin
    -- The function of 0050_roles, which may be called again at any time, with what is new here.
    foreach change slice 1 in array array[
        [$o$('projector', 'select, insert', 'search_outbox_audit'),$o$,
         $n$('projector', 'update (told)', 'search_outbox_discards'),
            ('projector', 'select, insert', 'search_outbox_audit'),$n$]]
    loop
        if position(change[2] in granting) = 0 then
            if position(change[1] in granting) = 0 then
                raise exception 'search_outbox_grant_roles() is not the one of 0050_roles: it lacks %', change[1];
            end if;
            granting := replace(granting, change[1], change[2]);
        end if;
    end loop;
    execute granting;
    select string_agg(statement, E'\n') into remaining from search_outbox_grant_roles() as statement;
    -- Where there are none at all, 0050_roles has said so.
    if remaining is not null and remaining not like '%create role%' then
        raise warning 'the roles of docs/security.md are not complete: this role may not make or change them'
            using hint = E'Everything works without them. To have them, run as a role that may:\n' || remaining;
    end if;
end
$do$;
