-- What `outbox attach --from-view` reads of the catalogue about a view, by the oids that its stored query names.

-- name: view_oid
-- Reads: the view by its name as SQL reads it.
select to_regclass(%(view)s)::oid::bigint

-- name: read_relations
-- Reads: relations with their columns, and the stored query of each that is a view.
select c.oid::bigint as oid, c.oid::regclass::text as sql, c.relname as name, quote_ident(c.relname) as quoted,
       n.nspname as schema, c.relkind::text as kind,
       (select r.ev_action::text from pg_rewrite as r
         where c.relkind = 'v' and r.ev_class = c.oid and r.ev_type = '1' and r.rulename = '_RETURN') as rule,
       columns.*
  from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
 cross join lateral (
    select coalesce(array_agg(a.attnum::int), '{}') as numbers, coalesce(array_agg(a.attname::text), '{}') as names,
           coalesce(array_agg(quote_ident(a.attname)), '{}') as quoted_names,
           coalesce(array_agg(a.attnotnull), '{}') as not_null
      from pg_attribute as a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns
 where c.oid = any (%(oids)s::oid[])

-- name: read_functions
-- Reads: functions, aggregates and window functions.
select p.oid::bigint as oid, p.oid::regproc::text as name, p.oid::regprocedure::text as shown, p.proisstrict as strict,
       p.provolatile::text as volatility, l.lanname as language, n.nspname = 'pg_catalog' as builtin,
       p.proretset as returns_set
  from pg_proc as p join pg_language as l on l.oid = p.prolang join pg_namespace as n on n.oid = p.pronamespace
 where p.oid = any (%(oids)s::oid[])

-- name: read_operators
-- Reads: operators. An equality is one that an index of sorted or hashed values serves as such.
select o.oid::bigint as oid, case when pg_operator_is_visible(o.oid) then o.oprname
                                  else format('operator(%%I.%%s)', n.nspname, o.oprname) end as name,
       o.oprcode::oid::bigint as function, p.proisstrict as strict,
       exists (select from pg_amop as a where a.amopopr = o.oid
                  and ((a.amopmethod = 403 and a.amopstrategy = 3) or (a.amopmethod = 405 and a.amopstrategy = 1)))
           as equality
  from pg_operator as o join pg_namespace as n on n.oid = o.oprnamespace join pg_proc as p on p.oid = o.oprcode
 where o.oid = any (%(oids)s::oid[])

-- name: read_types
-- Reads: types, each with the type under all its domains where that came with PostgreSQL.
with recursive under as (
    select t.oid as type, t.oid from pg_type as t where t.oid = any (%(oids)s::oid[])
    union all
    select under.type, t.typbasetype from under join pg_type as t on t.oid = under.oid where t.typtype = 'd'
)
select under.type::bigint as oid, format_type(under.type, null) as shown,
       case when t.typnamespace = 'pg_catalog'::regnamespace then t.typname::text else '' end as base
  from under join pg_type as t on t.oid = under.oid where t.typtype <> 'd'

-- name: loose_collations
-- Reads: collations by which texts that differ may be equal, and the encoding of stored queries.
select array(select c.oid::bigint from pg_collation as c where not c.collisdeterministic),
       current_setting('server_encoding')
