-- Pauses and other controls of operators; every daemon polls them once per second.

-- name: put_control
-- A pause, or a brake that is lifted for a while. Repeated, the newer one counts.
insert into search_outbox_controls (scope, kind, paused_by, reason, at, until)
values (%(scope)s, %(kind)s, %(by)s, %(reason)s, clock_timestamp(), clock_timestamp() + %(lasts)s)
    on conflict (scope) do update
   set kind = excluded.kind, paused_by = excluded.paused_by, reason = excluded.reason,
       at = excluded.at, until = excluded.until
returning scope, kind, paused_by as by, reason, at, until

-- name: take_control_back
-- The end of a pause. No row = nothing was paused.
delete from search_outbox_controls
 where scope = %(scope)s and kind = 'pause'
returning scope, kind, paused_by as by, reason, at, until
