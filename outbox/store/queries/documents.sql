-- Lookups in the view that the user defines (OUTBOX_DOCUMENTS). `{view}` is its quoted name, `{id_type}` its id's own type:
-- `entity_id::text` over a uuid key was a Seq Scan, 116 ms instead of 4. `{id_text}` is the text of a row's id: beside the
-- typed comparison it keeps apart what is equal by its type (1.0 and 1) and still names two documents.

-- name: draw
-- The version of all that is read after this statement, durable: drawn again after a crash of PostgreSQL, it could not keep
-- an older bulk that is still under way from winning. PostgreSQL logs 32 numbers ahead. Who takes one of those writes no log,
-- so its commit waits for nothing, and it may be lost with the log of whoever wrote it and has not committed. So numbers are
-- taken until one of them is logged here, which gives this transaction an id and makes its commit flush all that came before:
-- 33 on average, 0.3 us of CPU per event in batches of 500, and one flush per lookup (0.3 ms on a local disk). And whether the
-- view is a materialised one now.
with recursive drawn as (
    select nextval('search_outbox_version') as version, pg_current_xact_id_if_assigned() is not null as logged
    union all
    select nextval('search_outbox_version'), pg_current_xact_id_if_assigned() is not null from drawn where not logged
)
select max(version), (select relkind = 'm' from pg_class where oid = to_regclass(%(view)s)),
       set_config('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'local'), true)
  from drawn

-- name: shape
-- The columns of the view, or nothing where it does not exist. Each with its type as declared, and of the type below all
-- domains: what to cast to, its name, the schema of its operators, whether equal values may have two texts, its labels.
-- Last, the same for all: is the view a materialised one?
with recursive columns as (
    select a.attnum, a.attname, format_type(a.atttypid, a.atttypmod) as declared, a.atttypid as type, a.attcollation
      from pg_attribute a
     where a.attrelid = to_regclass(%(view)s) and a.attnum > 0 and not a.attisdropped
), below as (
    select attnum, type from columns
    union all
    select b.attnum, t.typbasetype from below b join pg_type t on t.oid = b.type where t.typtype = 'd'
)
select c.attname, c.declared,
       case t.typname when 'bpchar' then 'bpchar' else format_type(t.oid, null) end,
       case when t.typtype = 'e' then 'enum' when t.typname in ('bpchar', 'citext') then t.typname::text
            else format_type(t.oid, null) end,
       case t.typname when 'citext' then quote_ident(n.nspname) else 'pg_catalog' end,
       t.typname in ('numeric', 'citext') or coalesce(not l.collisdeterministic, false),
       array(select e.enumlabel::text from pg_enum e where e.enumtypid = t.oid),
       (select v.relkind = 'm' from pg_class v where v.oid = to_regclass(%(view)s))
  from columns c
  join below b on b.attnum = c.attnum
  join pg_type t on t.oid = b.type and t.typtype <> 'd'
  join pg_namespace n on n.oid = t.typnamespace
  left join pg_collation l on l.oid = c.attcollation

-- name: look_up
-- Behind `offset 0`, so that a document is built once, and not materialised, which would copy it (1 us each). Only those
-- below `inline_bytes` travel, or all where it is null; as bytes, because one letter outside the basic plane makes a str
-- four times as large. Who is asked for comes as json and goes back as a place in it: arrays of 500 took 8 us per entity to
-- write.
with wanted as (
    select * from rows from (json_array_elements_text(%(types)s::json), json_array_elements_text(%(entities)s::json))
        with ordinality as w (entity_type, entity_id, place)
)
select place::int, case when %(inline_bytes)s::int is null or octet_length(body) < %(inline_bytes)s
                then convert_to(body, 'UTF8') end,
       octet_length(body), nullif(routing, '')
  from (select w.place, d.document::text as body, {routing} as routing
          from wanted w
          join {view} d on d.entity_type = w.entity_type
           and {id} operator({id_ops}.=) w.entity_id::{id_type} and {id_text} = w.entity_id
        offset 0) found

-- name: types_in_view
-- Those of these types that the view has an entity of, one after the other by any row of those that are left. Where no
-- index finds a type, all that are not there cost one pass; by a subquery per type each of them would.
with recursive found as (
    select null::text as entity_type, %(types)s::text[] as types
    union all
    select n.entity_type, array_remove(f.types, n.entity_type)
      from found f
     cross join lateral (select d.entity_type::text from {view} d where d.entity_type = any (f.types) limit 1) n
)
select entity_type from found where entity_type is not null

-- name: finds
-- Whether the view can tell in time that it has an entity or not; no document is built.
select exists (select from {view} d where d.entity_type = %(entity_type)s
                and {id} operator({id_ops}.=) %(entity_id)s::text::{id_type}
                and {id_text} = %(entity_id)s::text)

-- name: page
-- One type's documents in key order, to be copied: one statement for ids and documents.
select id, case when octet_length(body) < %(inline_bytes)s then convert_to(body, 'UTF8') end,
       octet_length(body), nullif(routing, '')
  from (select {id_text} as id, d.document::text as body, {routing} as routing
          from {view} d
         where d.entity_type = %(entity_type)s and {beyond}
         order by {order} limit %(limit)s) page
