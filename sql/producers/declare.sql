-- The view keeps the type from now on. An earlier declaration stays: one that payloads keep is refused.
begin
    insert into {types} (entity_type, kept_by, versions, declared_by)
    values ({type}, {kept_by}, {versions}, 'outbox attach') on conflict (entity_type) do nothing;
    if exists (select from {types} where entity_type = {type} and kept_by <> {kept_by}) then
        raise exception 'events with payloads keep the entity type %', {type}
            using errcode = '55000', hint = 'Send no more payloads, and run `outbox types set TYPE view` first.';
    end if;
end
