-- Why:  a third op, `refresh`: make this entity's document equal to what the view says now. A version is drawn after its
--       claim and before the view is read, so documents that join tables are right whatever the order of commits.
--       `outbox_refresh` writes one; `outbox_enqueue` takes the op too. `read_version` and `read_found` keep what the
--       last lookup of an event was written as, for people. `search_outbox_raise_version` moves the version sequence
--       above a version that an index holds and this database never gave out (it was restored, or failed over to a
--       replica that lagged): never back, and not above 2^62, where the sequence would soon run out.
--       The projector may draw versions; roles that exist get what is new.
--       Both columns are nullable: nothing is rewritten.
-- Undo (the older program fails events of the op `refresh`, so none may be open):
--   do $undo$
--   begin
--       execute replace(replace(replace(pg_get_functiondef('search_outbox_grant_roles'::regproc),
--           $o$('projector', 'usage, select', 'sequence search_outbox_version')$o$,
--           $n$('projector', 'select', 'sequence search_outbox_version')$n$),
--           'update (op, read_version, read_found, ', 'update (op, '),
--           'search_outbox_audit_prune, search_outbox_raise_version to', 'search_outbox_audit_prune to');
--   end $undo$;
--   drop function if exists search_outbox_raise_version(bigint);
--   drop function if exists outbox_refresh(text, text, text, text);
--   alter table search_outbox_events drop column if exists read_version, drop column if exists read_found;
--   create or replace function outbox_enqueue(
--       entity_type text,
--       entity_id text,
--       op text,
--       payload json default null,
--       version bigint default null,
--       routing text default null,
--       idempotency_key text default null,
--       traceparent text default null
--   ) returns uuid
--   language plpgsql set search_path from current as $fn$
--   #variable_conflict use_variable
--   declare
--       event_id uuid;
--       -- An adopted table keeps its own column type (uuid, say), which text does not become by itself in an INSERT.
--       typed_id search_outbox_events.entity_id%type;
--   begin
--       if coalesce(entity_type, '') = '' then
--           raise exception 'outbox_enqueue: entity_type is empty' using errcode = '22023',
--               hint = 'Give the kind of the entity, for example ''article''.';
--       end if;
--       if coalesce(entity_id, '') = '' then
--           raise exception 'outbox_enqueue: entity_id is empty' using errcode = '22023',
--               hint = 'Give the id of the entity; it names the document.';
--       end if;
--       if octet_length(convert_to(entity_id, 'UTF8')) > 512 then
--           raise exception 'outbox_enqueue: entity_id has % bytes, 512 at most', octet_length(convert_to(entity_id, 'UTF8'))
--               using errcode = '22001', hint = 'Elasticsearch takes document ids of at most 512 bytes.';
--       end if;
--       if op is null or op not in ('upsert', 'delete') then
--           raise exception 'outbox_enqueue: unknown op %', coalesce(quote_literal(op), 'null') using errcode = '22023',
--               hint = 'op is ''upsert'' or ''delete''.';
--       end if;
--       if json_typeof(payload) <> 'object' then
--           raise exception 'outbox_enqueue: payload is a json %, not an object', json_typeof(payload)
--               using errcode = '22023', hint = 'A document is a json object; null means: look it up in the view.';
--       end if;
--       if version < 0 then
--           raise exception 'outbox_enqueue: version % is negative', version using errcode = '22003',
--               hint = 'Elasticsearch takes external versions of 0 or more; leave it out for the default.';
--       end if;
--       typed_id := entity_id;
--       insert into search_outbox_events
--           (entity_type, entity_id, op, payload, event_version, routing, idempotency_key, traceparent)
--       values (entity_type, typed_id, op, payload, coalesce(version, nextval('search_outbox_version')), routing,
--               idempotency_key, traceparent)
--       on conflict do nothing
--       returning id into event_id;
--       if event_id is null then
--           select e.id into event_id from search_outbox_events as e
--           where e.idempotency_key = outbox_enqueue.idempotency_key;
--       end if;
--       return event_id;
--   end
--   $fn$;
--   do $undo$
--   begin
--       execute format('alter function outbox_enqueue set search_path = pg_catalog, %I, pg_temp', current_schema());
--   end $undo$;
--   delete from search_outbox_migrations where name = '0064_refresh';

alter table search_outbox_events add column if not exists read_version bigint;
alter table search_outbox_events add column if not exists read_found boolean;

create or replace function outbox_enqueue(
    entity_type text,
    entity_id text,
    op text,
    payload json default null,
    version bigint default null,
    routing text default null,
    idempotency_key text default null,
    traceparent text default null
) returns uuid
language plpgsql set search_path from current as $fn$
#variable_conflict use_variable
declare
    event_id uuid;
    -- An adopted table keeps its own column type (uuid, say), which text does not become by itself in an INSERT.
    typed_id search_outbox_events.entity_id%type;
begin
    if coalesce(entity_type, '') = '' then
        raise exception 'outbox_enqueue: entity_type is empty' using errcode = '22023',
            hint = 'Give the kind of the entity, for example ''article''.';
    end if;
    if coalesce(entity_id, '') = '' then
        raise exception 'outbox_enqueue: entity_id is empty' using errcode = '22023',
            hint = 'Give the id of the entity; it names the document.';
    end if;
    if octet_length(convert_to(entity_id, 'UTF8')) > 512 then
        raise exception 'outbox_enqueue: entity_id has % bytes, 512 at most', octet_length(convert_to(entity_id, 'UTF8'))
            using errcode = '22001', hint = 'Elasticsearch takes document ids of at most 512 bytes.';
    end if;
    if op is null or op not in ('upsert', 'delete', 'refresh') then
        raise exception 'outbox_enqueue: unknown op %', coalesce(quote_literal(op), 'null') using errcode = '22023',
            hint = 'op is ''upsert'', ''delete'' or ''refresh''.';
    end if;
    if op = 'refresh' and (payload is not null or version is not null) then
        raise exception 'outbox_enqueue: a refresh has neither payload nor version' using errcode = '22023',
            hint = 'Its document is read from the view, under a version that is drawn then. With a payload of its own '
                   'the op is ''upsert''.';
    end if;
    if json_typeof(payload) <> 'object' then
        raise exception 'outbox_enqueue: payload is a json %, not an object', json_typeof(payload)
            using errcode = '22023', hint = 'A document is a json object; null means: look it up in the view.';
    end if;
    if version < 0 then
        raise exception 'outbox_enqueue: version % is negative', version using errcode = '22003',
            hint = 'Elasticsearch takes external versions of 0 or more; leave it out for the default.';
    end if;

    typed_id := entity_id;
    insert into search_outbox_events
        (entity_type, entity_id, op, payload, event_version, routing, idempotency_key, traceparent)
    values (entity_type, typed_id, op, payload, coalesce(version, nextval('search_outbox_version')), routing,
            idempotency_key, traceparent)
    on conflict do nothing
    returning id into event_id;
    if event_id is null then
        select e.id into event_id from search_outbox_events as e
        where e.idempotency_key = outbox_enqueue.idempotency_key;
    end if;
    return event_id;
end
$fn$;

create or replace function outbox_refresh(
    entity_type text,
    entity_id text,
    routing text default null,
    traceparent text default null
) returns uuid
language sql set search_path from current as $fn$
    select outbox_enqueue(entity_type => $1, entity_id => $2, op => 'refresh', routing => $3, traceparent => $4)
$fn$;

-- The owner's rights, because the projector may not set a sequence: by this it can only be moved on.
create or replace function search_outbox_raise_version(seen bigint) returns bigint
language plpgsql security definer set search_path from current as $fn$
declare
    now_at bigint;
begin
    if seen > 4611686018427387904 then
        raise exception 'version % is above 2^62: it is not followed', seen using errcode = '22003',
            hint = 'Someone wrote it by hand. Rebuild the index with `outbox rebuild`.';
    end if;
    perform pg_advisory_xact_lock(hashtextextended('search_outbox_version', 0));
    select last_value into now_at from search_outbox_version;
    if now_at < seen then
        -- nextval waits for no lock: what others draw between these two statements must stay below.
        now_at := setval('search_outbox_version', seen + 1000000);
    end if;
    return now_at;
end
$fn$;
revoke execute on function search_outbox_raise_version(bigint) from public;

do $do$
declare
    ours regprocedure;
    granting text := pg_get_functiondef('search_outbox_grant_roles'::regproc);
    change text[];
    remaining text;
begin
    for ours in
        select p.oid from pg_proc p join pg_namespace n on n.oid = p.pronamespace
         where n.nspname = current_schema()
           and p.proname in ('outbox_enqueue', 'outbox_refresh', 'search_outbox_raise_version')
    loop
        execute format('alter function %s set search_path = pg_catalog, %I, pg_temp', ours, current_schema());
    end loop;
    -- The function of 0050_roles, which may be called again at any time, with what is new here.
    foreach change slice 1 in array array[
        [$o$('projector', 'select', 'sequence search_outbox_version')$o$,
         $n$('projector', 'usage, select', 'sequence search_outbox_version')$n$],
        ['update (op, ', 'update (op, read_version, read_found, '],
        ['search_outbox_audit_prune to', 'search_outbox_audit_prune, search_outbox_raise_version to']]
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
