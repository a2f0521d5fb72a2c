-- The body of an attachment with --payload. It runs AFTER the row's own write, when the row lock is held: whoever changes
-- the row next waits for the commit and draws its version later, so versions of an entity grow in the order of its commits.
declare
    typed_id {ids}.entity_id%type;
    taken_over boolean := false;
begin
    -- A changed id or routing leaves a document behind, which must go. Not if another row has taken over the old id
    -- (a swap in one statement): that row's own event speaks for it.
    if tg_op = 'UPDATE' and old.{id}::text is distinct from new.{id}::text then
        execute format({other_row}, coalesce(pg_partition_root(tg_relid), tg_relid)::regclass)
            into taken_over using old.{id}, old.{id}::text;
    end if;
    if tg_op = 'DELETE'
       or (tg_op = 'UPDATE'
           and ((old.{id}::text is distinct from new.{id}::text and not taken_over)
                or (old.{id}::text = new.{id}::text and {old_routing} is distinct from {new_routing}))) then
        typed_id := old.{id}::text;
        insert into {events} (entity_type, entity_id, op, event_version, routing)
        values ({type}, typed_id, 'delete', nextval({version}::regclass), {old_routing});
    end if;
    if tg_op <> 'DELETE' then
        typed_id := new.{id}::text;
        insert into {events} (entity_type, entity_id, op, event_version, routing, payload)
        values ({type}, typed_id, 'upsert', nextval({version}::regclass), {new_routing}, to_json(new));
    end if;
    return null;
end
