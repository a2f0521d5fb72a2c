-- What was finished lately, minute by minute, from the roll-up that the daemons feed. Done rows are never read.

-- name: minutes
-- Reads: finished events of the last minutes by entity type; the key's first column bounds the scan.
select entity_type, bucket as minute, sum(n)::bigint as n
  from search_outbox_rollup
 where bucket >= date_trunc('minute', (select clock_timestamp()) - %(window)s) and span = 'minute'
   and outcome in ('done', 'superseded', 'missing')
 group by 1, 2
