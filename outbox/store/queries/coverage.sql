-- Which tables and columns the view of documents reads, and which of them nothing covers: no attachment, and nobody who
-- said that they need none. Reads PostgreSQL's own catalogue, and no row of a user's table.

-- name: coverage
-- Reads: every relation that the view reads, itself or by way of other views. `uncovered`: columns whose changes write no
-- event. `attached`: its new and deleted rows do; `ignored`: as a whole. A table may be read without any column of it.
-- `made`: another text once the query of a view, or a column of the relation, is another.
with recursive read_views (oid) as (
    select to_regclass(%(view)s)::oid
    union
    select d.refobjid
      from read_views as v
      join pg_rewrite as r on r.ev_class = v.oid
      join pg_depend as d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid
           and d.refclassid = 'pg_class'::regclass
      join pg_class as c on c.oid = d.refobjid and c.relkind = 'v'
), rules as (
    select r.oid, r.ev_class, r.ev_action, r.xmin::text as made
      from read_views as v
      join pg_class as c on c.oid = v.oid and c.relkind = 'v'
      join pg_rewrite as r on r.ev_class = v.oid and r.ev_type = '1'
), named (relid, attnum) as (
    select d.refobjid, d.refobjsubid
      from rules
      join pg_depend as d on d.classid = 'pg_rewrite'::regclass and d.objid = rules.oid
           and d.refclassid = 'pg_class'::regclass and d.refobjid <> rules.ev_class
    union
    -- A whole row, as in to_json(t). pg_depend has the table alone for it, and nothing where a column is named too; the
    -- stored tree has a variable without a number, of the table's row type.
    select t.typrelid, a.attnum
      from rules, regexp_matches(rules.ev_action::text, ':varattno 0 :vartype (\d+)', 'g') as m
      join pg_type as t on t.oid = m[1]::oid
      join pg_attribute as a on a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
), direct as (
    -- What a virtual generated column is computed from: triggers do not see the column itself.
    select n.relid, coalesce(of_it.refobjsubid, n.attnum) as attnum
      from named as n
      left join pg_attribute as a on a.attrelid = n.relid and a.attnum = n.attnum
      left join pg_attrdef as made on a.attgenerated = 'v' and made.adrelid = n.relid and made.adnum = n.attnum
      left join pg_depend as of_it on of_it.classid = 'pg_attrdef'::regclass and of_it.objid = made.oid
           and of_it.refclassid = 'pg_class'::regclass and of_it.refobjid = n.relid
           and of_it.refobjsubid not in (0, n.attnum)
), family (relid, child) as (
    -- Who reads a table reads the tables that inherit from it, which have triggers of their own; partitions have not.
    select relid, relid from direct
    union
    select f.relid, i.inhrelid
      from family as f
      join pg_inherits as i on i.inhparent = f.child
      join pg_class as c on c.oid = i.inhrelid and not c.relispartition
), read (relid, column_name) as (
    -- By name: a child's numbers are its own. Null is the table itself.
    select distinct f.child, a.attname
      from direct as d
      join family as f on f.relid = d.relid
      left join pg_attribute as a on a.attrelid = d.relid and a.attnum = d.attnum and a.attnum > 0
     union
    -- The view itself, where it is none.
    select to_regclass(%(view)s)::oid, null
      from pg_class as c where c.oid = to_regclass(%(view)s) and c.relkind <> 'v'
), relations as (
    select r.relid, c.relkind, quote_ident(n.nspname) || '.' || quote_ident(c.relname) as shown,
           array(select distinct s from unnest(array[r.relid::regclass]
                     || array(select relid from pg_partition_ancestors(r.relid::regclass))) as s) as sources,
           array_agg(r.column_name order by r.column_name) filter (where r.column_name is not null) as columns
      from read as r
      join pg_class as c on c.oid = r.relid and c.relkind <> 'v'
      join pg_namespace as n on n.oid = c.relnamespace
     group by r.relid, c.relkind, n.nspname, c.relname
)
select r.shown as "table", r.relkind::text as kind, r.relid = to_regclass(%(view)s) as itself,
       covers.attached, covers.ignored,
       array(select c from unnest(r.columns) as c where not covers.wholly and c <> all (covers.columns)) as uncovered,
       (select string_agg(oid || ':' || made, ' ' order by oid) from rules)
           || (select coalesce(string_agg(a.xmin::text, ' ' order by a.attnum), '') from pg_attribute as a where a.attrelid = r.relid) as made
  from relations as r
 cross join lateral (
    select coalesce(bool_or(by_trigger), false) as attached,
           coalesce(bool_or(not by_trigger and cardinality(said.columns) = 0), false) as ignored,
           coalesce(bool_or(cardinality(said.columns) = 0), false) as wholly,
           coalesce(array_agg(named.name) filter (where named.name is not null), '{}') as columns
      from (select true as by_trigger, a.watched as columns from search_outbox_attachments as a
             where a.closed_at is null and a.source = any (r.sources)
            union all
            select false, i.columns from search_outbox_ignored_tables as i where i.source = any (r.sources)) as said
      left join lateral unnest(said.columns) as named (name) on true) as covers
 order by 1

-- name: is_in_use
-- Reads: does the view keep an entity type, or may it still come to.
select coalesce(bool_or(kept_by = 'view'), false) as keeps_types, count(*) > 0 as has_types from search_outbox_entity_types

-- name: ignored
-- Reads: the tables that are said to write no events on purpose.
select quote_ident(n.nspname) || '.' || quote_ident(c.relname) as "table", i.columns, i.reason, i.ignored_by, i.ignored_at
  from search_outbox_ignored_tables as i
  join pg_class as c on c.oid = i.source join pg_namespace as n on n.oid = c.relnamespace
 order by 1

-- name: open_attachments
-- Reads: what is attached, by the table's oid.
select source::oid::bigint as source, entity_type, id_column, via, watched from search_outbox_attachments
 where closed_at is null

-- name: ignored_columns
-- Reads: the same for the derivation of attachments: by the table's oid, the columns; none named means the whole table.
select source::oid::bigint, columns from search_outbox_ignored_tables

-- name: ignore
-- Says that a table, or some of its columns, needs no attachment. Said again, the newer one counts.
insert into search_outbox_ignored_tables (source, named, columns, reason, ignored_by)
values (%(source)s::oid::regclass, %(named)s, %(columns)s::text[], %(reason)s, %(by)s)
    on conflict (source) do update
   set named = excluded.named, columns = excluded.columns, reason = excluded.reason, ignored_by = excluded.ignored_by,
       ignored_at = clock_timestamp()

-- name: watch_again
-- Takes that back. No row = it was not said.
delete from search_outbox_ignored_tables where source = %(source)s::oid::regclass
returning columns, reason, ignored_by
