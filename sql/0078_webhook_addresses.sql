-- Why:  the path of a webhook's address is often its secret, and the reader's role could read it in three places: a
--       delivery's url, a replay's webhook_url, and the name of the control that stops sending to one. Now PostgreSQL
--       itself computes a name without the path (host and the first digits of a hash) beside both columns, the control
--       bears that name, and the reader may read every column but the address.
--       Both tables are rewritten once: they hold what OUTBOX_AUDIT_TTL_DAYS keeps. The name is computed, not written, so
--       that a daemon of the release before fills it too.
-- Undo (addresses that said 410 Gone are tried again and say so again):
--   do $undo$
--   declare
--       reader constant text := coalesce(nullif(current_setting('search_outbox.role_prefix', true), ''), 'search_outbox')
--           || '_reader';
--   begin
--       execute replace(replace(pg_get_functiondef('search_outbox_grant_roles'::regproc),
--           $o$search_outbox_quotas, search_outbox_rebuilds, '$o$,
--           $n$search_outbox_quotas, search_outbox_rebuilds, search_outbox_replays, '$n$),
--           $o$'search_outbox_workers'),
--               ('reader', (select format('select (%s)', string_agg(quote_ident(attname), ', ' order by attnum))
--                             from pg_attribute where attrelid = 'search_outbox_replays'::regclass and attnum > 0
--                              and not attisdropped and attname <> 'webhook_url'), 'search_outbox_replays'),
--               ('reader', (select format('select (%s)', string_agg(quote_ident(attname), ', ' order by attnum))
--                             from pg_attribute where attrelid = 'search_outbox_webhook_deliveries'::regclass and attnum > 0
--                              and not attisdropped and attname <> 'url'), 'search_outbox_webhook_deliveries')$o$,
--           $n$'search_outbox_webhook_deliveries, search_outbox_workers')$n$);
--       if to_regrole(quote_ident(reader)) is not null then
--           execute format('grant select on search_outbox_replays, search_outbox_webhook_deliveries to %I', reader);
--       end if;
--   end $undo$;
--   delete from search_outbox_controls where kind = 'webhook_disabled';
--   alter table search_outbox_replays drop column if exists webhook_to;
--   alter table search_outbox_webhook_deliveries drop column if exists sent_to;
--   drop function if exists search_outbox_webhook_key(text);
--   delete from search_outbox_migrations where name = '0078_webhook_addresses';
-- Roles: reader SELECT on all columns of both tables but the address.

-- The same name as `url_key` in outbox/policy/webhook.py gives.
create or replace function search_outbox_webhook_key(url text) returns text
language sql immutable strict parallel safe as $fn$
    select coalesce(pg_catalog.lower(coalesce(pg_catalog.substring(url, '://(?:[^/?#]*@)?\[([^]]+)\]'),
                                              pg_catalog.substring(url, '://(?:[^/?#]*@)?([^/?#:]+)'))), '?')
           || '#' || pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(url, 'UTF8')), 'hex'), 12)
$fn$;

alter table search_outbox_webhook_deliveries
    add column if not exists sent_to text generated always as (search_outbox_webhook_key(url)) stored;
alter table search_outbox_replays
    add column if not exists webhook_to text generated always as (search_outbox_webhook_key(webhook_url)) stored;

update search_outbox_controls
   set scope = 'webhook:' || search_outbox_webhook_key(substr(scope, length('webhook:') + 1))
 where kind = 'webhook_disabled' and scope like 'webhook:%://%';

do $do$
declare
    granting text := pg_get_functiondef('search_outbox_grant_roles'::regproc);
    reader constant text := coalesce(nullif(current_setting('search_outbox.role_prefix', true), ''), 'search_outbox')
        || '_reader';
    change text[];
    remaining text;
begin
    -- The function of 0050_roles, which may be called again at any time, with what is new here.
    foreach change slice 1 in array array[
        [$o$search_outbox_quotas, search_outbox_rebuilds, search_outbox_replays, '$o$,
         $n$search_outbox_quotas, search_outbox_rebuilds, '$n$],
        [$o$'search_outbox_webhook_deliveries, search_outbox_workers')$o$,
         $n$'search_outbox_workers'),
            ('reader', (select format('select (%s)', string_agg(quote_ident(attname), ', ' order by attnum))
                          from pg_attribute where attrelid = 'search_outbox_replays'::regclass and attnum > 0
                           and not attisdropped and attname <> 'webhook_url'), 'search_outbox_replays'),
            ('reader', (select format('select (%s)', string_agg(quote_ident(attname), ', ' order by attnum))
                          from pg_attribute where attrelid = 'search_outbox_webhook_deliveries'::regclass and attnum > 0
                           and not attisdropped and attname <> 'url'), 'search_outbox_webhook_deliveries')$n$]]
    loop
        if position(change[2] in granting) = 0 then
            if position(change[1] in granting) = 0 then
                raise exception 'search_outbox_grant_roles() is not the one of 0050_roles: it lacks %', change[1];
            end if;
            granting := replace(granting, change[1], change[2]);
        end if;
    end loop;
    execute granting;
    if to_regrole(quote_ident(reader)) is not null then
        execute format('revoke select on search_outbox_replays, search_outbox_webhook_deliveries from %I', reader);
    end if;
    select string_agg(statement, E'\n') into remaining from search_outbox_grant_roles() as statement;
    -- Where there are none at all, 0050_roles has said so.
    if remaining is not null and remaining not like '%create role%' then
        raise warning 'the roles of docs/security.md are not complete: this role may not make or change them'
            using hint = E'Everything works without them. To have them, run as a role that may:\n' || remaining;
    end if;
end
$do$;
