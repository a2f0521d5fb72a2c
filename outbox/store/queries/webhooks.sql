-- Webhook deliveries outlive the process that made them. A sender takes one at a time by moving its next attempt into
-- the future, so that no transaction is held across the HTTP call; the result is written only by who took it.

-- name: enqueue
-- (nothing) -> pending. A key that exists was reported: at most one per minute and fingerprint, one per replay.
insert into search_outbox_webhook_deliveries (type, url, body, dedupe_key, replay_id)
values (%(type)s, %(url)s, %(body)s::json, %(dedupe_key)s, %(replay_id)s)
    on conflict (dedupe_key) do nothing
returning id

-- name: take
-- Takes the delivery that has waited longest, for as long as a try may last.
update search_outbox_webhook_deliveries d
   set attempts = d.attempts + 1, last_attempt_at = clock_timestamp(), next_attempt_at = clock_timestamp() + %(lease)s
 where d.id = (
        select id from search_outbox_webhook_deliveries
         where status = 'pending' and next_attempt_at <= (select clock_timestamp())
         order by next_attempt_at limit 1
           for no key update skip locked)
returning d.id, d.type, d.url, d.body, d.attempts,
          (d.redelivered_by is null and exists (
                select from search_outbox_controls c
                 where c.scope = 'webhook:' || d.sent_to and c.kind = 'webhook_disabled'))

-- name: delivered
-- pending -> delivered.
update search_outbox_webhook_deliveries
   set status = 'delivered', delivered_at = clock_timestamp(), next_attempt_at = null,
       response_status = %(response)s, error = null
 where id = %(id)s and attempts = %(attempts)s and status = 'pending'
returning url

-- name: put_off
-- pending -> pending: tried again later.
update search_outbox_webhook_deliveries
   set next_attempt_at = clock_timestamp() + %(delay)s, response_status = %(response)s, error = %(error)s
 where id = %(id)s and attempts = %(attempts)s and status = 'pending'

-- name: close
-- pending -> given_up | disabled.
update search_outbox_webhook_deliveries
   set status = %(status)s, next_attempt_at = null, response_status = %(response)s, error = %(error)s
 where id = %(id)s and attempts = %(attempts)s and status = 'pending'

-- name: disable
-- The receiver has said 410: it wants no more. Lasts until a redelivery succeeds. Named without the address's path.
insert into search_outbox_controls (scope, kind, paused_by, reason)
select 'webhook:' || sent_to, 'webhook_disabled', 'receiver', 'answered 410 Gone'
  from search_outbox_webhook_deliveries where id = %(id)s
    on conflict (scope) do nothing

-- name: enable
-- A receiver that takes a message again is no longer disabled. The second name is what a release before gave it.
delete from search_outbox_controls c
 using search_outbox_webhook_deliveries d
 where d.id = %(id)s and c.scope in ('webhook:' || d.sent_to, 'webhook:' || d.url) and c.kind = 'webhook_disabled'

-- name: redeliver
-- any -> pending: a person asks for it once more, also where the address is disabled.
update search_outbox_webhook_deliveries
   set status = 'pending', attempts = 0, next_attempt_at = clock_timestamp(), redelivered_by = %(by)s,
       delivered_at = null, error = null
 where id = %(id)s
returning id, type, sent_to, replay_id

-- name: page
-- Reads: deliveries, newest first, from below a time and id.
select d.id, d.type, d.sent_to, d.status, d.attempts, d.created_at, d.last_attempt_at, d.next_attempt_at, d.delivered_at,
       d.response_status, d.error, d.replay_id, d.redelivered_by, d.body,
       exists (select from search_outbox_controls c
                where c.scope = 'webhook:' || d.sent_to and c.kind = 'webhook_disabled') as disabled
  from search_outbox_webhook_deliveries d
 where (d.created_at, d.id) < (%(before)s, %(before_id)s)
 order by d.created_at desc, d.id desc limit %(limit)s
