insert into {events} (entity_type, entity_id, op)
select {type}, written.id::{id_type}, {op}
  from (select distinct {id}::text collate pg_catalog."C" as id
          from {changed}
         where {id} is not null) as written
