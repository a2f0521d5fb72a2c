-- The trigger function of one attached table, made by `outbox attach`. It runs AFTER the row's own write, when the row
-- lock is held: whoever changes the row next waits for the commit and draws its version later, so versions of an entity
-- grow in the order of its commits. All names are qualified, so the writer's search_path does not matter.
create or replace function {function}() returns trigger
language plpgsql as $capture$
declare
    typed_id {events}.entity_id%type;
begin
    -- A changed id or routing leaves a document behind, which must go. Not if another row has taken over the old id
    -- (a swap in one statement): that row's own event speaks for it.
    if tg_op = 'DELETE'
       or (tg_op = 'UPDATE'
           and ((old.{id}::text is distinct from new.{id}::text
                 and not exists (select from {table} as t where t.{id} = old.{id} and t.{id}::text = old.{id}::text))
                or (old.{id}::text = new.{id}::text and {old_routing} is distinct from {new_routing}))) then
        typed_id := old.{id}::text;
        insert into {events} (entity_type, entity_id, op, event_version, routing)
        values ({type}, typed_id, 'delete', nextval({version}::regclass), {old_routing});
    end if;
    if tg_op <> 'DELETE' then
        typed_id := new.{id}::text;
        insert into {events} (entity_type, entity_id, op, event_version, routing, payload)
        values ({type}, typed_id, 'upsert', nextval({version}::regclass), {new_routing}, {payload});
    end if;
    return null;
end
$capture$;

create or replace trigger search_outbox_capture
    after insert or update or delete on {table}
    for each row execute function {function}({type}, {id_name}, {routing_name}, {payload_name});

-- ALWAYS: rows that arrive by logical replication, or under session_replication_role = replica, are changes too.
alter table {table} enable always trigger search_outbox_capture;
