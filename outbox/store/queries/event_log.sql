-- The event log of `outbox migrate --log`: its days, and what `outbox doctor` asks of it.

-- name: is_there
-- Reads: is the log installed, and may this role make and drop its days?
select coalesce(has_function_privilege(to_regprocedure('search_outbox_log_days(int)'), 'EXECUTE')
            and has_function_privilege(to_regprocedure('search_outbox_log_prune(interval, int)'), 'EXECUTE'), false)

-- name: make_days
-- Makes the partitions of the coming days that are missing.
select search_outbox_log_days(%(ahead)s::int)

-- name: prune
-- Whole days that ended longer ago go, and such rows of the default partition.
select search_outbox_log_prune(%(keep)s::interval, %(most)s::int)

-- name: installation
-- Reads: what of the log is there, and how the server is set; one row.
select to_regproc('search_outbox_enqueue_table') is not null as on,
       to_regclass('search_outbox_log') is not null as has_table,
       p.pubname is not null as has_publication,
       coalesce(p.pubinsert and p.pubviaroot, false) as publishes_inserts,
       coalesce(p.pubupdate or p.pubdelete or p.pubtruncate, false) as publishes_more,
       exists (select from pg_publication_rel as r where r.prpubid = p.oid and r.prrelid = to_regclass('search_outbox_log'))
           as publishes_log,
       current_setting('wal_level') as wal_level,
       pg_size_bytes(nullif(current_setting('max_slot_wal_keep_size'), '-1')) as most_kept_bytes,
       has_function_privilege(to_regprocedure('search_outbox_log_days(int)'), 'EXECUTE') as may_make_days
  from (values (1)) as one (row) left join pg_publication as p on p.pubname = 'outbox_log'

-- name: slot
-- Reads: the connector's slot. What it keeps is measured from the end of the write-ahead log.
select s.plugin, s.active, s.wal_status, s.slot_type = 'logical' and s.database = current_database() as ours,
       case when not pg_is_in_recovery() then
           pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::bigint end as kept_bytes,
       case when not pg_is_in_recovery() then
           pg_wal_lsn_diff(pg_current_wal_lsn(), s.confirmed_flush_lsn)::bigint end as unread_bytes,
       s.safe_wal_size as safe_bytes
  from pg_replication_slots as s where s.slot_name = %(slot)s

-- name: captured
-- Reads: the end of the write-ahead log, and up to where the connector has confirmed it. The end of what is inserted, not
-- of what is written: a commit without a flush is visible before it is written. Nothing on a standby, which writes none.
select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint as end,
       pg_wal_lsn_diff(s.confirmed_flush_lsn, '0/0')::bigint as confirmed,
       s.active, coalesce(s.wal_status = 'lost', false) as is_lost
  from pg_replication_slots as s
 where s.slot_name = %(slot)s and s.database = current_database() and s.confirmed_flush_lsn is not null
   and not pg_is_in_recovery()

-- name: sample_slot
-- Reads: the connector's slot for the metrics; one row where producers write to the log, even if there is no slot. What
-- a lost slot kept is not known.
select coalesce(s.active, false) as active, coalesce(k.kept_bytes, 0) as kept_bytes, coalesce(k.unread_bytes, 0) as unread_bytes,
       case when s.wal_status = 'lost' then 0 else s.safe_wal_size end as safe_bytes
  from (values (%(slot)s)) as asked (name) left join pg_replication_slots as s on s.slot_name = asked.name
       left join lateral (
           select pg_wal_lsn_diff(w.at, s.restart_lsn)::bigint as kept_bytes,
                  pg_wal_lsn_diff(w.at, s.confirmed_flush_lsn)::bigint as unread_bytes
             from (select case when not pg_is_in_recovery() then pg_current_wal_lsn() end as at) as w) as k on true
 where to_regproc('search_outbox_enqueue_table') is not null

-- name: days
-- Reads: the last day that has a partition, in days from today (UTC), the oldest, and the rows of the default
-- partition up to a limit.
select max(d.day) - (now() at time zone 'utc')::date as ahead,
       (now() at time zone 'utc')::date - min(d.day) as oldest,
       (select count(*) from (select from search_outbox_log_default limit %(most)s) as rows) as in_default
  from (select to_date(right(c.relname, 8), 'YYYYMMDD') as day
          from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
         where i.inhparent = to_regclass('search_outbox_log') and c.relname ~ '^search_outbox_log_\d{8}$') as d
