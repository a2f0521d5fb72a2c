-- What the number in the triggers stands for. The same attachment has the same number, so this can be repeated.
insert into {attachments} (id, source, named, entity_type, id_column, via, used, columns, watched, per_row,
                           path, partitions, function)
values ({id}, {source}::regclass, {named}, {entity_type}, {id_column}, {via}, {used}, {columns}, {watched},
        {per_row}, {path}, {partitions}, {function})
on conflict (id) do update
   set source = excluded.source, partitions = excluded.partitions, per_row = excluded.per_row, watched = excluded.watched,
       function = excluded.function, attached_by = excluded.attached_by, attached_at = excluded.attached_at,
       closed_at = null
