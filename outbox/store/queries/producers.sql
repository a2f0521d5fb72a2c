-- What `outbox attach` and `outbox doctor` read of users' tables and of the triggers on them.

-- name: table
-- Reads: a table by its name as it is written (capitals kept), or else as SQL would read it.
select c.oid::bigint as oid, n.nspname as schema, c.relname as relation, c.relkind::text as kind,
       c.relpersistence = 'p' as permanent, c.relispartition as is_partition,
       exists (select from pg_inherits as i where i.inhparent = c.oid) as has_children,
       exists (select from pg_inherits as i where i.inhrelid = c.oid) as is_child,
       exists (select from pg_subscription_rel as s where s.srrelid = c.oid) as is_subscribed
  from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
 where c.oid = coalesce(to_regclass(quote_ident(%(name)s::text)), to_regclass(%(name)s::text))

-- name: partitions
-- Reads: the table itself and, where it has them, all partitions; each with whether TRUNCATE is refused there.
select c.oid::bigint as oid, n.nspname as schema, c.relname as relation,
       exists (select from pg_trigger as t where t.tgrelid = c.oid and t.tgenabled = 'A'
                  and t.tgname = 'search_outbox_no_truncate') as guarded
  from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
 where c.oid = %(oid)s::oid or c.oid in (select relid from pg_partition_tree(%(oid)s::oid::regclass)) order by 2, 3

-- name: columns
-- Reads: the columns of a table or view. A domain is shown as such and judged by the type under it.
select a.attname as name, a.attnotnull as not_null, a.attgenerated::text as generated,
       format_type(a.atttypid, a.atttypmod) as shown, base.typname as base, base.nspname as base_schema,
       base.typcategory::text as category, case when base.typname in ('varchar', 'bpchar') and a.atttypmod > 4
                                                then a.atttypmod - 4 end as length
  from pg_attribute as a
  cross join lateral (
      with recursive under as (
          select t.oid, t.typbasetype from pg_type as t where t.oid = a.atttypid
          union all
          select t.oid, t.typbasetype from under join pg_type as t on t.oid = under.typbasetype)
      select t.typname, t.typcategory, n.nspname
        from under join pg_type as t on t.oid = under.oid join pg_namespace as n on n.oid = t.typnamespace
       where under.typbasetype = 0) as base
 where a.attrelid = %(oid)s::oid and a.attnum > 0 and not a.attisdropped
 order by a.attnum

-- name: unique_columns
-- Reads: columns that are unique by themselves, by a valid index without a condition; beside one of them the index may
-- have only columns by which the table or one of its partitions is partitioned.
select distinct a.attname
  from pg_index as x
  join pg_attribute as a on a.attrelid = x.indrelid and a.attnum = any ((x.indkey::int2[])[0 : x.indnkeyatts - 1])
 where x.indrelid = %(oid)s::oid and x.indisunique and x.indisvalid and x.indpred is null and a.attnotnull
   and not exists (
       select from unnest((x.indkey::int2[])[0 : x.indnkeyatts - 1]) as k (attnum)
        where k.attnum <> a.attnum
          and not exists (
              select from pg_attribute as b
                join pg_partitioned_table as p on p.partrelid = %(oid)s::oid
                     or p.partrelid in (select relid from pg_partition_tree(%(oid)s::oid::regclass))
                join pg_attribute as pa on pa.attrelid = p.partrelid and pa.attnum = any (p.partattrs::int2[])
               where b.attrelid = x.indrelid and b.attnum = k.attnum and pa.attname = b.attname))

-- name: foreign_columns
-- Reads: columns that point to rows of other tables.
select a.attname
  from pg_constraint as k
  join pg_attribute as a on a.attrelid = k.conrelid and a.attnum = any (k.conkey)
 where k.conrelid = %(oid)s::oid and k.contype = 'f' and k.confrelid <> k.conrelid

-- name: primary_key
-- Reads: the columns of the primary key.
select a.attname
  from pg_index as x
  join pg_attribute as a on a.attrelid = x.indrelid and a.attnum = any ((x.indkey::int2[])[0 : x.indnkeyatts - 1])
 where x.indrelid = %(oid)s::oid and x.indisprimary
 order by a.attnum

-- name: cascading_owner
-- Reads: the owner of a table that foreign keys change, where that role may not write events. PostgreSQL runs ON DELETE
-- CASCADE and the like with the owner's rights, and so our trigger too.
select c.relowner::regrole::text
  from pg_class as c, pg_class as events
 where c.oid = %(oid)s::oid
   and events.oid = case when to_regproc('search_outbox_enqueue_table') is null
                         then to_regclass('search_outbox_events') else to_regclass('search_outbox_log') end
   and exists (select from pg_constraint as k where k.contype = 'f' and k.conrelid = c.oid
                  and (k.confdeltype in ('c', 'n', 'd') or k.confupdtype in ('c', 'n', 'd')))
   and not (has_column_privilege(c.relowner, events.oid, 'entity_id', 'INSERT')
            and has_sequence_privilege(c.relowner, to_regclass('search_outbox_seq'), 'USAGE')
            and has_sequence_privilege(c.relowner, to_regclass('search_outbox_version'), 'USAGE'))

-- name: search_path
-- Reads: where names of this session are found, without temporary tables.
select s from unnest(current_schemas(true)) with ordinality as p (s, place) where s not like 'pg\_temp%%' order by place

-- name: outbox_schema
-- Reads: the schema of the outbox, and whether producers write to the event log.
select n.nspname, c.oid::bigint, to_regproc('search_outbox_enqueue_table') is not null from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
 where c.oid = to_regclass('search_outbox_events')

-- name: estimate
-- Reads: PostgreSQL's own estimate of the rows of a table with its partitions, none where there are no pages; null where
-- it has none of a part.
select case when bool_and(c.reltuples > 0 or pages.none) then sum(case when pages.none then 0 else c.reltuples end)::bigint end
  from pg_class as c
 cross join lateral (select pg_relation_size(c.oid) = 0) as pages (none)
 where c.relkind = 'r'
   and (c.oid = %(oid)s::oid or c.oid in (select relid from pg_partition_tree(%(oid)s::oid::regclass)))

-- name: volatile_functions
-- Reads: the volatile functions that a view calls, itself or by way of views that it reads. The stored tree names
-- functions and operators by their oid; pg_depend would not: it leaves out those that came with PostgreSQL.
with recursive read_views (oid) as (
    select %(oid)s::oid
    union
    select d.refobjid
      from read_views as v
      join pg_rewrite as r on r.ev_class = v.oid
      join pg_depend as d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid
           and d.refclassid = 'pg_class'::regclass
      join pg_class as c on c.oid = d.refobjid and c.relkind = 'v'
), called (kind, oid) as (
    select m[1], m[2]::oid
      from read_views as v
      join pg_rewrite as r on r.ev_class = v.oid and r.ev_type = '1',
           regexp_matches(r.ev_action::text, ':(funcid|opfuncid|opno|aggfnoid|winfnoid) (\d+)', 'g') as m
)
select distinct p.oid::regprocedure::text
  from called as c
  left join pg_operator as o on c.kind = 'opno' and o.oid = c.oid
  join pg_proc as p on p.oid = case when c.kind = 'opno' then o.oprcode else c.oid end
 where p.provolatile = 'v'
 order by 1

-- name: unreadable
-- Reads: what a view reads itself and the projector's role may not, as SQL writes it; nothing where there is no such role.
select c.oid::regclass::text, r.rolname
  from pg_roles as r
  join pg_rewrite as w on w.ev_class = %(oid)s::oid
  join pg_depend as d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid and d.refclassid = 'pg_class'::regclass
  join pg_class as c on c.oid = d.refobjid and c.oid not in (w.ev_class, %(source)s::oid)
 where r.rolname = coalesce(nullif(current_setting('search_outbox.role_prefix', true), ''), 'search_outbox') || '_projector'
   and not has_any_column_privilege(r.oid, c.oid, 'SELECT')
 group by 1, 2
 order by 1

-- name: samples
-- Reads: does a view take a random sample of a table?
select r.ev_action::text like '%%{TABLESAMPLECLAUSE%%' from pg_rewrite as r where r.ev_class = %(oid)s::oid

-- name: _attached
-- The table `c`, the function `p` and the trigger `t` of an attachment.
       c.oid::bigint as oid, n.nspname as schema, c.relname as relation, format('%%I.%%I', n.nspname, c.relname) as quoted,
       t.tgname as name, t.tgenabled::text as enabled,
       coalesce(position('"search_outbox_log" (' in p.prosrc) > 0, to_regproc('search_outbox_enqueue_table') is not null)
           as to_log,
       coalesce(position('fanout_keys' in p.prosrc) > 0, true) as writes_fanouts,
       to_regproc('search_outbox_enqueue_table') is not null as log_is_on,
       c.relkind = 'p' or exists (select from pg_inherits as i where c.oid in (i.inhrelid, i.inhparent))
           or exists (select from pg_subscription_rel as s where s.srrelid = c.oid) as needs_row_triggers

-- name: installed
-- Reads: what is attached, with its triggers; a row without a trigger where none is there. A table that is gone has no
-- row, and a partition's own copy of a trigger is not listed.
select a.id, a.entity_type, a.id_column, a.via, a.used, a.columns, a.watched, a.per_row, a.path,
       a.partitions, a.function, e.nspname as function_schema,
-- include: _attached
  from search_outbox_attachments as a
  join pg_class as events on events.oid = to_regclass('search_outbox_events')
  join pg_namespace as e on e.oid = events.relnamespace
  join pg_class as c on c.oid = a.source
  join pg_namespace as n on n.oid = c.relnamespace
  left join pg_proc as p on p.proname = a.function and p.pronamespace = e.oid
  left join pg_trigger as t on t.tgrelid = c.oid and t.tgfoid = p.oid and t.tgparentid = 0 and not t.tgisinternal
 where a.closed_at is null
 order by n.nspname, c.relname, a.attached_at, a.id, t.tgname

-- name: strays
-- Reads: triggers named as ours that no attachment explains: of release 0.1.0, or someone else's. `ours`: the function is
-- the outbox's owner's.
select null::bigint as id, t.tgargs as about, p.proname as function, f.nspname as function_schema, p.prosrc as body,
       p.proowner = events.relowner as ours,
       array(select (parse_ident(trim(name)))[1]
               from unnest(p.proconfig) as s, string_to_table(substring(s from '=(.*)'), ',') as name
              where s like 'search\_path=%%') as path,
-- include: _attached
  from pg_trigger as t
  join pg_class as c on c.oid = t.tgrelid
  join pg_namespace as n on n.oid = c.relnamespace
  join pg_proc as p on p.oid = t.tgfoid
  join pg_namespace as f on f.oid = p.pronamespace
  join pg_class as events on events.oid = to_regclass('search_outbox_events')
 where t.tgparentid = 0 and not t.tgisinternal
   and t.tgname like 'search\_outbox\_capture%%' and p.proname like 'search\_outbox\_capture%%'
   and not exists (select from search_outbox_attachments as a
                    where a.closed_at is null and a.source = t.tgrelid and a.function = p.proname)
 order by n.nspname, c.relname, p.oid, t.tgname

-- name: read_relations
-- Reads: a view and what it reads, itself or by way of other views, each with what it is; nothing where it is not there.
with recursive read (oid) as (
    select to_regclass(%(view)s)::oid
    union
    select d.refobjid
      from read
      join pg_class as c on c.oid = read.oid and c.relkind = 'v'
      join pg_rewrite as r on r.ev_class = c.oid
      join pg_depend as d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid
           and d.refclassid = 'pg_class'::regclass
)
select c.oid::bigint as oid, c.oid::regclass::text as name, c.relkind::text as kind, c.oid = to_regclass(%(view)s) as itself
  from read join pg_class as c on c.oid = read.oid order by 2

-- name: has_entity_type
-- Reads: does the view have a document of this type?
select exists (select from {view} as d where d.entity_type = %(entity_type)s::text)
