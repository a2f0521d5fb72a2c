-- The two filters of people, as text of the queries that hold the mark `/* and filter */`. What nobody asked for is null,
-- and PostgreSQL folds its condition away: nothing of this is prepared, so each value is known when it plans.

-- name: _event
-- Conditions of the event filter over `e`; the time is that of the rows' state.
and (e.id = any (%(f_ids)s::uuid[]) or %(f_ids)s::uuid[] is null)
and (e.entity_type = %(f_entity_type)s or %(f_entity_type)s is null)
and (e.entity_id = %(f_entity_id)s or %(f_entity_id)s is null)
and (e.error_reason = %(f_error_reason)s or %(f_error_reason)s is null
     or (%(f_error_reason)s = 'none' and e.error_reason is null))
and (e.error_code = %(f_error_code)s or %(f_error_code)s is null)
and (e.dead_reason = %(f_dead_reason)s or %(f_dead_reason)s is null)
and (e.error_reason = any (%(f_reasons)s::text[]) or %(f_reasons)s::text[] is null
     or (%(f_failure_type)s = 'unknown' and not coalesce(e.error_reason = any (%(f_known_reasons)s::text[]), false)))
and (e.error_fingerprint = %(f_fingerprint)s or %(f_fingerprint)s is null
     or (%(f_fingerprint)s = 'none' and e.error_fingerprint is null))
-- The trace id is the second part of `00-TRACE-SPAN-01`.
and (substr(e.traceparent, 4, 32) = %(f_trace_id)s or %(f_trace_id)s is null)
and (e.{time} >= %(f_since)s::timestamptz or %(f_since)s::timestamptz is null)
and (e.{time} < %(f_until)s::timestamptz or %(f_until)s::timestamptz is null)

-- name: _audit
-- Conditions of the audit filter over `a`.
and (a.entity_type = %(f_entity_type)s or %(f_entity_type)s is null)
and (a.entity_id = %(f_entity_id)s or %(f_entity_id)s is null)
and (a.trace_id = %(f_trace_id)s or %(f_trace_id)s is null)
and (a.action = %(f_action)s or %(f_action)s is null)
and (a.actor = %(f_actor)s or %(f_actor)s is null)
and (a.batch_id = %(f_batch_id)s::uuid or %(f_batch_id)s::uuid is null)
and (a.at >= %(f_since)s::timestamptz or %(f_since)s::timestamptz is null)
and (a.at < %(f_until)s::timestamptz or %(f_until)s::timestamptz is null)
