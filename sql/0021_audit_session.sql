-- Why:  a row of the audit has the name that the caller gives. `login` is who the session really was, set by the database and
--       covered by the hash, so that a row which someone inserts with the console's words tells them apart from the console.
--       Rows from before have none, and their hashes hold as they are.
--       Whoever may UPDATE or DELETE events could discard and delete them by SQL of their own without a trace. Now
--       the commit adds a row for each such event that no row of the same transaction names, with the source `sql`: for
--       a discarded event, and for a deleted one that was open or failed. Done and discarded events are pruned all the
--       time, and losing them loses nothing. Deferred, because acts write their rows last.
--       The trigger of discards is on search_outbox_discards: a claim and a settle pay nothing.
-- Undo (rows that were written since then no longer verify):
--   drop trigger if exists search_outbox_audit_discard on search_outbox_discards;
--   drop trigger if exists search_outbox_audit_delete on search_outbox_events;
--   drop function if exists search_outbox_audit_outside();
--   do $undo$
--   begin
--       execute replace(pg_get_functiondef('search_outbox_audit_chain()'::regprocedure),
--                       E'new.login := session_user;\n    ', '');
--   end $undo$;
--   create or replace function search_outbox_audit_text(a search_outbox_audit) returns text
--   language sql stable as $fn$
--       select jsonb_build_array(a.id, (extract(epoch from a.at) * 1000000)::bigint, a.action, a.actor, a.role, a.source,
--           a.reason, a.batch_id, a.event_id, a.entity_type, a.entity_id, a.trace_id, a.detail::text)::text
--   $fn$;
--   alter table search_outbox_audit drop column if exists login;
--   alter table search_outbox_audit drop constraint if exists search_outbox_audit_source_check;
--   alter table search_outbox_audit add constraint search_outbox_audit_source_check
--       check (source in ('cli', 'api', 'console', 'daemon')) not valid;
--   delete from search_outbox_migrations where name = '0021_audit_session';
-- Roles: as before; nobody calls the function.

alter table search_outbox_audit add column login text;
alter table search_outbox_audit drop constraint search_outbox_audit_source_check;
alter table search_outbox_audit add constraint search_outbox_audit_source_check
    check (source in ('cli', 'api', 'console', 'daemon', 'sql')) not valid;

do $do$
begin
    execute replace(pg_get_functiondef('search_outbox_audit_chain()'::regprocedure),
        'new.at := clock_timestamp();', E'new.login := session_user;\n    new.at := clock_timestamp();');
end
$do$;

create or replace function search_outbox_audit_text(a search_outbox_audit) returns text
language sql stable as $fn$
    select (jsonb_build_array(a.id, (extract(epoch from a.at) * 1000000)::bigint, a.action, a.actor, a.role, a.source,
        a.reason, a.batch_id, a.event_id, a.entity_type, a.entity_id, a.trace_id, a.detail::text)
        || case when a.login is null then '[]' else jsonb_build_array(a.login) end)::text
$fn$;

create or replace function search_outbox_audit_outside() returns trigger
language plpgsql security definer set search_path from current as $fn$
declare
    subject uuid;
begin
    if tg_op = 'INSERT' and tg_relid = 'search_outbox_discards'::regclass then
        subject := new.event_id;
    elsif tg_op = 'DELETE' and coalesce(pg_partition_root(tg_relid), tg_relid) = 'search_outbox_events'::regclass then
        subject := old.id;
    else
        raise exception '% is not for table %', 'search_outbox_audit_outside()', tg_relid::regclass
            using errcode = 'insufficient_privilege';
    end if;
    if exists (select from search_outbox_audit a where a.event_id = subject and a.at >= transaction_timestamp()) then
        return null;
    end if;
    if tg_op = 'INSERT' then
        insert into search_outbox_audit (action, actor, source, event_id, entity_type, entity_id)
        values ('EVENT_DISCARDED', session_user, 'sql', subject, new.entity_type, new.entity_id);
    else
        insert into search_outbox_audit (action, actor, source, event_id, entity_type, entity_id, detail)
        values ('EVENT_DELETED', session_user, 'sql', subject, left(old.entity_type, 600), old.entity_id::text,
                json_build_object('status', old.status));
    end if;
    return null;
end
$fn$;
revoke execute on function search_outbox_audit_outside() from public;

create constraint trigger search_outbox_audit_discard after insert on search_outbox_discards
    deferrable initially deferred for each row execute function search_outbox_audit_outside();
create constraint trigger search_outbox_audit_delete after delete on search_outbox_events
    deferrable initially deferred for each row when (old.status in ('pending', 'processing', 'failed'))
    execute function search_outbox_audit_outside();
alter table search_outbox_discards enable always trigger search_outbox_audit_discard;
alter table search_outbox_events enable always trigger search_outbox_audit_delete;

select search_outbox_seal(current_schema()::regnamespace);
