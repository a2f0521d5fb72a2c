insert into {events} as event (entity_type, entity_id, op, fanout_attachment, fanout_keys)
select {type}, {key}, 'fanout', {number}, written.keys::pg_catalog.json
  from (select distinct pg_catalog.row_to_json(keys)::text collate pg_catalog."C" as keys, {named} as key
          from {changed} cross join lateral (select {used}) as keys) as written
