insert into {events} (entity_type, entity_id, op, routing)
select {type}, written.id::{id_type}, {op}, written.routing
  from (select distinct {id}::text collate pg_catalog."C" as id, {routing} as routing
          from {changed}
         where {id} is not null) as written
