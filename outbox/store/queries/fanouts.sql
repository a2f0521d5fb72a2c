-- Fan-outs: which documents a change touches, asked after its commit.

-- name: read
-- Reads: claimed fan-outs, each with its attachment, closed or not. Keys of any size were accepted; far too many stay out.
select e.id, a.id as number, coalesce(a.entity_type, e.entity_type) as entity_type, coalesce(a.named, '') as named,
       case when c.oid is not null then format('%%I.%%I', n.nspname, c.relname) end as "table",
       a.via, coalesce(a.path, '{}') as path, case when octet_length(e.fanout_keys::text) <= %(key_bytes)s then e.fanout_keys::text end as keys,
       e.fanout_cursor as cursor
  from search_outbox_events as e
  left join search_outbox_attachments as a on a.id = e.fanout_attachment
  left join pg_class as c on c.oid = a.source
  left join pg_namespace as n on n.oid = c.relnamespace
 where e.id = any (%(ids)s)

-- name: find
-- Reads: the ids that the query finds for rows with these values, each once, in an order that a cursor can go on in.
select found.id
  from (select via.id::text collate "C" as id
          from json_populate_recordset(null::{table}, %(keys)s::json) as changed
         cross join lateral (
{via}
) as via (id)) as found
 where found.id > coalesce(%(after)s::text, '') collate "C"
 group by found.id
 order by found.id
 limit %(most)s

-- name: open_refreshes
-- Reads: how many refreshes of fan-outs are open, up to a limit.
select count(*) from (
    select from search_outbox_events
     where fanout_id is not null and processed_at is null and failed_at is null limit %(most)s) as few

-- name: write_page
-- A page of refreshes and the cursor behind it, in one statement: a fan-out that is not ours any more, or that someone has
-- moved on, writes nothing.
with moved as (
    update search_outbox_events
       set fanout_cursor = %(until)s, fanout_written = coalesce(fanout_written, 0) + cardinality(%(ids)s::text[]),
           updated_at = clock_timestamp()
     where id = %(id)s and lease_token = %(token)s and status = 'processing'
       and fanout_cursor is not distinct from %(after)s::text
       and (select set_config('synchronous_commit', 'off', true)) is not null
    returning id
)
insert into search_outbox_events (entity_type, entity_id, op, fanout_id)
select %(entity_type)s, page.id::{entity_id_type}, 'refresh', moved.id
  from moved cross join unnest(%(ids)s::text[]) as page (id)
