-- Entities of the view that a person names by a condition: SQL of their own, one expression over the view's columns, run
-- read-only and with a time limit. Their keys are walked by `view_keys` of truth.sql.

-- name: check_condition
-- Whether it is one expression. In brackets of the other kind: what closes those of a query early does not fit here.
select array[{condition}
] from {view} d limit %(limit)s

-- name: count
-- How many there are; no document is built unless the condition asks for it.
select count(*) from {view} d
 where d.entity_type = %(entity_type)s and d.entity_id is not null and ({condition}
)
