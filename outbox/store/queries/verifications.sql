-- Results of comparisons between PostgreSQL and the index.

-- name: begin
-- A comparison starts; only the last hundred are kept.
with old as (
    delete from search_outbox_verifications
     where id in (select id from search_outbox_verifications order by id desc offset 99)
)
insert into search_outbox_verifications (started_by, target, entity_type, sample, rebuild_id, estimate)
values (%(started_by)s, %(target)s, %(entity_type)s, %(sample)s, %(rebuild_id)s, %(estimate)s)
returning id

-- name: counts
-- How far it is, and in the end how it ended.
update search_outbox_verifications
   set status = %(status)s,
       finished_at = case when %(status)s = 'running' then null else clock_timestamp() end,
       compared = %(compared)s, missing = %(missing)s, stale = %(stale)s, orphaned = %(orphaned)s,
       different = %(different)s, unknown = %(unknown)s, unreadable = %(unreadable)s, in_flux = %(in_flux)s,
       report = coalesce(%(report)s::json, report), error = %(error)s, updated_at = clock_timestamp()
 where id = %(id)s

-- name: lately
-- Reads: the newest comparisons, first the newest, without those of a rebuild. One that says nothing for a minute was killed.
select id, started_at, finished_at, started_by, target, entity_type, sample,
       case when status = 'running' and updated_at < clock_timestamp() - interval '1 minute' then 'failed' else status end
           as status, compared, missing, stale, orphaned,
       different, unknown, unreadable, in_flux, estimate, rebuild_id,
       case when status = 'running' and updated_at < clock_timestamp() - interval '1 minute'
            then 'it ended without a word' else error end as error,
       report, extract(epoch from coalesce(finished_at, clock_timestamp()) - started_at)::float8 as seconds
  from search_outbox_verifications
 where rebuild_id is null
 order by id desc limit %(limit)s

-- name: last_finished
-- Reads: the newest result about all that people search, for the daemons' metrics. One type, one target of several or
-- another index says nothing about the rest: its zero would hide drift, and another index's drift would be a false alarm.
select id, compared, missing, stale, orphaned, different, unknown,
       extract(epoch from finished_at)::float8, extract(epoch from finished_at - started_at)::float8
  from search_outbox_verifications
 where status = 'finished' and rebuild_id is null and entity_type is null and target = %(target)s
 order by id desc limit 1
