-- The counts behind the statistics: what each daemon has done, by minute.

-- name: add_counts
-- Adds to this minute's counts. In key order, so that two daemons that add at once cannot deadlock; a lost one costs
-- a few counts, so nobody waits for the disk.
insert into search_outbox_rollup (bucket, span, entity_type, outcome, reason, n)
select date_trunc('minute', clock_timestamp()), 'minute', added.entity_type, added.outcome, added.reason, added.n
  from unnest(%(entity_types)s::text[], %(outcomes)s::text[], %(reasons)s::text[], %(counts)s::bigint[])
       as added (entity_type, outcome, reason, n)
 where (select set_config('synchronous_commit', 'off', true)) is not null
 order by added.entity_type, added.outcome, added.reason
    on conflict (bucket, span, entity_type, outcome, reason) do update set n = search_outbox_rollup.n + excluded.n
