-- Lookups in the view that the user defines (OUTBOX_DOCUMENTS). `{view}` is its quoted name, `{id_type}` its id's own type:
-- `entity_id::text` over a uuid key was a Seq Scan, 116 ms instead of 4.

-- name: draw
-- The version of all that is read after this statement.
select nextval('search_outbox_version')

-- name: shape
-- The columns of the view, or nothing where it does not exist.
select a.attname, format_type(a.atttypid, null)
  from pg_attribute a
 where a.attrelid = to_regclass(%(view)s) and a.attnum > 0 and not a.attisdropped

-- name: look_up
-- Materialised, so that a document is built once; only those below `inline_bytes`
-- travel, or all where it is null; as bytes, because one letter outside the basic plane makes a str four times as large.
with wanted as (
    select * from unnest(%(ids)s::uuid[], %(types)s::text[], %(entities)s::text[]) as w (id, entity_type, entity_id)
), found as materialized (
    select w.id, d.document::text as body, {version} as version, {routing} as routing
      from wanted w
      join {view} d on d.entity_type = w.entity_type and d.entity_id = w.entity_id::{id_type}
)
select id, case when %(inline_bytes)s::int is null or octet_length(body) < %(inline_bytes)s
                then convert_to(body, 'UTF8') end,
       octet_length(body), version, routing from found

-- name: has_type
-- Whether the view has an entity of this type, and one with a version of its own.
select exists (select from {view} d where d.entity_type = %(entity_type)s),
       exists (select from {view} d where d.entity_type = %(entity_type)s and {version} is not null)

-- name: first_page
-- One type's first documents in key order, to be copied: one statement for ids and documents.
with page as materialized (
    select d.entity_id as key, d.document::text as body, {version} as version, {routing} as routing
      from {view} d
     where d.entity_type = %(entity_type)s and d.entity_id is not null
     order by d.entity_id limit %(limit)s
)
select key::text, case when octet_length(body) < %(inline_bytes)s then convert_to(body, 'UTF8') end,
       octet_length(body), version, routing
  from page order by key

-- name: next_page
-- The page after a key.
with page as materialized (
    select d.entity_id as key, d.document::text as body, {version} as version, {routing} as routing
      from {view} d
     where d.entity_type = %(entity_type)s and d.entity_id > %(after)s::{id_type}
     order by d.entity_id limit %(limit)s
)
select key::text, case when octet_length(body) < %(inline_bytes)s then convert_to(body, 'UTF8') end,
       octet_length(body), version, routing
  from page order by key
