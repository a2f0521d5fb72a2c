-- Why:  functions for producers that refuse early, with a message they can act on, what the worker would fail later. A
--       known idempotency key returns the event that has it. Fixed search_path: the caller's does not matter. The op
--       `refresh` makes an entity's document equal to what the view says now: a version is drawn after its claim and
--       before the view is read, so documents that join tables are right whatever the order of commits.
--       And the refusal of TRUNCATE that `outbox attach` puts on attached tables.
-- Undo (after `outbox detach` of every attached table):
--   drop function if exists outbox_refresh(text, text, text, text);
--   drop function if exists outbox_enqueue(text, text, text, json, bigint, text, text, text);
--   drop function if exists search_outbox_refuse_truncate();
--   delete from search_outbox_migrations where name = '0006_enqueue';
-- Roles (granted by a later migration): producer EXECUTE, and INSERT + SELECT(id, idempotency_key) on the table.

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

create or replace function search_outbox_refuse_truncate() returns trigger
language plpgsql as $fn$
begin
    raise exception 'TRUNCATE of %.% is refused: it is attached to the outbox', tg_table_schema, tg_table_name
        using errcode = '55006', hint = 'Use DELETE, which removes the documents too, or run `outbox detach` first.';
end
$fn$;
