-- Entities of the view that a person names by a condition: SQL of their own, one expression over the view's columns, run
-- read-only and with a time limit.

-- name: check_condition
-- Whether it is one expression. In brackets of the other kind, so that one which closes ours early fits only one of both.
select array[{condition}
] from {view} d limit %(limit)s

-- name: keys
-- A page of one type's keys. By the view's own column: a bare name would mean the text in the list.
select d.entity_id::text from {view} d
 where d.entity_type = %(entity_type)s and d.entity_id is not null and ({condition}
)
 order by d.entity_id limit %(limit)s

-- name: keys_after
-- The page after a key.
select d.entity_id::text from {view} d
 where d.entity_type = %(entity_type)s and d.entity_id > %(after)s::{id_type} and ({condition}
)
 order by d.entity_id limit %(limit)s

-- name: count
-- How many there are; no document is built unless the condition asks for it.
select count(*) from {view} d
 where d.entity_type = %(entity_type)s and d.entity_id is not null and ({condition}
)
