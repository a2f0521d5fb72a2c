-- The audit: INSERT only. Its triggers give every row its id, time and hash under one lock per statement, so whoever
-- writes here does it last in a transaction.

-- name: write
-- Adds rows in the order given, in the transaction of the act.
insert into search_outbox_audit
       (action, actor, source, role, reason, batch_id, event_id, entity_type, entity_id, trace_id, detail)
select n.action, n.actor, n.source, n.role, n.reason, n.batch_id, n.event_id, n.entity_type, n.entity_id, n.trace_id,
       n.detail::json
  from unnest(%(actions)s::text[], %(actors)s::text[], %(sources)s::text[], %(roles)s::text[], %(reasons)s::text[],
              %(batches)s::uuid[], %(events)s::uuid[], %(types)s::text[], %(entities)s::text[], %(traces)s::text[],
              %(details)s::text[]) with ordinality
       as n (action, actor, source, role, reason, batch_id, event_id, entity_type, entity_id, trace_id, detail, place)
 order by n.place

-- name: page
-- Reads: one page, newest first, from below an id.
select a.id, a.at, a.action, a.actor, a.role, a.source, a.reason, a.batch_id, a.event_id, a.entity_type, a.entity_id,
       a.trace_id, a.detail, a.login, a.prev_hash, a.hash
  from search_outbox_audit a
 where a.id < %(before)s /* and audit filter */
 order by a.id desc limit %(limit)s

-- name: count
-- Reads: how many match, up to a limit.
select count(*) from (select from search_outbox_audit a where a.id <= %(max_id)s /* and audit filter */ limit %(most)s) found

-- name: export
-- Reads: the next of all that match, oldest first, from above an id.
select a.id, a.at, a.action, a.actor, a.role, a.source, a.reason, a.batch_id, a.event_id, a.entity_type, a.entity_id,
       a.trace_id, a.detail, a.login, a.prev_hash, a.hash
  from search_outbox_audit a
 where a.id > %(after)s and a.id <= %(max_id)s /* and audit filter */
 order by a.id limit %(limit)s

-- name: head
-- Reads: where the chain ends.
select id, hash from search_outbox_audit_head

-- name: chain
-- Reads: the head, then every place of the chain in order, pruned ones before a row that claims an id of theirs.
select c.id, c.hash, c.prev_hash, c.text, c.first
  from (select id, hash, null::bytea as prev_hash, null::text as text, id as first, 0 as rank
          from search_outbox_audit_head
        union all
        select id, hash, null, null, coalesce(since, id), 1 from search_outbox_audit_pruned
        union all
        select a.id, a.hash, a.prev_hash, search_outbox_audit_text(a), a.id, 2 from search_outbox_audit a) c
 order by c.rank > 0, c.first, c.rank

-- name: prune_preview
-- Reads: what a prune would remove.
select count(*), min(a.at), max(a.at) from search_outbox_audit a
 where a.at < %(before)s and a.id <= %(max_id)s /* and audit filter */

-- name: prune_step
-- Removes one step of rows, none younger than seven days, and adds one that says so; their hashes stay.
select removed, last
  from search_outbox_audit_prune(%(before)s, %(after)s, %(max_id)s, %(limit)s, %(entity_type)s, %(entity_id)s,
                                 %(trace_id)s, %(action)s, %(actor)s, %(batch_id)s, %(since)s, %(by)s, %(role)s,
                                 %(source)s, %(reason)s, %(archived)s)

-- name: cutoff
-- The database's clock decides what is old.
select clock_timestamp() - make_interval(secs => %(seconds)s)
