-- Why:  a function with the owner's rights that everybody may execute is a door: whoever may make a temporary table could
--       attach the trigger functions of the audit and of the discards to it, and so overwrite the head of the audit, hold
--       its lock or delete discards. Nobody needs the right to execute a trigger function, not even who fires the
--       trigger: it is asked for when a trigger is made. So PUBLIC loses it, for every function of ours with the owner's
--       rights, and such a trigger function refuses to run for another table than its own (here the discards', in the
--       next file the audit's).
--       A restore without privileges gives it back to PUBLIC: search_outbox_grant_roles() takes it away again.
--       0062_seq_of_open_rows had set the guard's search_path to that of whoever migrated: closed again, as 0050_roles
--       had it.
-- Undo (PUBLIC does not get back the right to execute, nor the guard its open search_path):
--   create or replace function search_outbox_discards() returns trigger
--   language plpgsql security definer set search_path from current as $fn$
--   begin
--       if tg_op = 'UPDATE' and new.status = 'discarded' then
--           insert into search_outbox_discards (event_id, entity_type, entity_id, event_version, seq)
--           values (new.id, new.entity_type, new.entity_id::text, new.event_version, new.seq)
--               on conflict (event_id) do nothing;
--           return new;
--       end if;
--       delete from search_outbox_discards where event_id = old.id;
--       return case when tg_op = 'UPDATE' then new else old end;
--   end
--   $fn$;
--   do $undo$
--   begin
--       execute format('alter function search_outbox_discards() set search_path = pg_catalog, %I, pg_temp',
--           current_schema());
--       execute regexp_replace(pg_get_functiondef('search_outbox_grant_roles'::regproc),
--           E'        select \'\', format.\'revoke execute on function.*?union all\n', '');
--   end $undo$;
--   delete from search_outbox_migrations where name = '0073_closed_functions';

create or replace function search_outbox_discards() returns trigger
language plpgsql security definer set search_path from current as $fn$
begin
    -- A partition of the table, where someone made it a partitioned one, counts as the table.
    if coalesce(pg_partition_root(tg_relid), tg_relid) <> 'search_outbox_events'::regclass then
        raise exception '% is not for table %', 'search_outbox_discards()', tg_relid::regclass
            using errcode = 'insufficient_privilege';
    end if;
    if tg_op = 'UPDATE' and new.status = 'discarded' then
        insert into search_outbox_discards (event_id, entity_type, entity_id, event_version, seq)
        values (new.id, new.entity_type, new.entity_id::text, new.event_version, new.seq)
            on conflict (event_id) do nothing;
        return new;
    end if;
    delete from search_outbox_discards where event_id = old.id;
    return case when tg_op = 'UPDATE' then new else old end;
end
$fn$;

do $do$
declare
    ours record;
    granting text;
    anchor constant text := E'        -- The user\'s own view, where it is there already under its usual name.\n';
    anew constant text := $n$        select '', format('revoke execute on function %s from public', p.oid::regprocedure) from pg_proc p
         where p.prosecdef and p.pronamespace = home::regnamespace and p.proname like 'search\_outbox\_%'
        union all
$n$;
begin
    for ours in
        select p.oid::regprocedure as named, p.prosecdef from pg_proc p join pg_namespace n on n.oid = p.pronamespace
         where n.nspname = current_schema()
           and (p.proname like 'search\_outbox\_%' or p.proname in ('outbox_enqueue', 'outbox_refresh'))
           -- The functions of `outbox attach` keep the path that they were made with.
           and p.proname not like 'search\_outbox\_capture%'
           and (p.prosecdef or p.proconfig is not null)
    loop
        execute format('alter function %s set search_path = pg_catalog, %I, pg_temp', ours.named, current_schema());
        if ours.prosecdef then
            execute format('revoke execute on function %s from public', ours.named);
        end if;
    end loop;
    -- The function of 0050_roles, which may be called again at any time, with what is new here.
    granting := pg_get_functiondef('search_outbox_grant_roles'::regproc);
    if position(anew in granting) = 0 then
        if position(anchor in granting) = 0 then
            raise exception 'search_outbox_grant_roles() is not the one of 0050_roles: it lacks %', anchor;
        end if;
        execute replace(granting, anchor, anew || anchor);
    end if;
end
$do$;
