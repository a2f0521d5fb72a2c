-- Why:  the trail could be erased: who may prune chose the age itself (`infinity`), the summary was the caller's to write or
--       not, and a setting of the session, which a row's own expression may set, chose a row's id and the hash before it.
--       Now the chain goes on from the locked head and from the rows of the same statement, read from the tables; the
--       prune function writes its summary in the transaction of the removal, so that no kill comes between the two, and
--       touches nothing younger than seven days, whoever asks: long enough for an export or a backup to have it. Only the
--       owner could replace that number. Each function runs for its own table alone.
--       The new parameters of the prune have defaults: a daemon of the previous release calls it as before, and its
--       prunes are written down under the name of its login.
--       (Measured: 36 us of CPU a row instead of 24, its indexes included.)
-- Undo:
--   drop function if exists search_outbox_audit_prune(timestamptz, bigint, bigint, int, text, text, text, text, text, uuid,
--       timestamptz, text, text, text, text, boolean);
--   create or replace function search_outbox_audit_begin() returns trigger
--   language plpgsql security definer set search_path from current as $fn$
--   declare
--       head search_outbox_audit_head;
--   begin
--       select * into strict head from search_outbox_audit_head for no key update;
--       perform set_config('search_outbox.chain', head.id || ':' || encode(head.hash, 'hex'), true);
--       return null;
--   end
--   $fn$;
--   create or replace function search_outbox_audit_chain() returns trigger
--   language plpgsql security definer set search_path from current as $fn$
--   declare
--       chain text := current_setting('search_outbox.chain');
--   begin
--       new.id := split_part(chain, ':', 1)::bigint + 1;
--       new.at := clock_timestamp();
--       new.prev_hash := decode(split_part(chain, ':', 2), 'hex');
--       new.hash := sha256(new.prev_hash || convert_to(search_outbox_audit_text(new), 'UTF8'));
--       perform set_config('search_outbox.chain', new.id || ':' || encode(new.hash, 'hex'), true);
--       return new;
--   end
--   $fn$;
--   create or replace function search_outbox_audit_end() returns trigger
--   language plpgsql security definer set search_path from current as $fn$
--   declare
--       chain text := current_setting('search_outbox.chain');
--   begin
--       update search_outbox_audit_head
--          set id = split_part(chain, ':', 1)::bigint, hash = decode(split_part(chain, ':', 2), 'hex')
--        where id <> split_part(chain, ':', 1)::bigint;
--       return null;
--   end
--   $fn$;
--   create or replace function search_outbox_audit_refuse() returns trigger
--   language plpgsql security definer set search_path from current as $fn$
--   begin
--       if tg_op = 'DELETE' and exists (
--               select from search_outbox_audit_pruned p where p.id = old.id and p.hash = old.hash) then
--           return old;
--       end if;
--       raise exception 'search_outbox_audit takes INSERT only: % refused', tg_op
--           using errcode = 'object_not_in_prerequisite_state', hint = 'Use `outbox audit prune` to remove old rows.';
--   end
--   $fn$;
--   create or replace function search_outbox_audit_prune(
--       p_before timestamptz, p_after bigint, p_max bigint, p_limit int,
--       p_entity_type text default null, p_entity_id text default null, p_trace_id text default null,
--       p_action text default null, p_actor text default null, p_batch_id uuid default null,
--       p_since timestamptz default null)
--   returns table (removed bigint, acts bigint, first bigint, last bigint)
--   language plpgsql security definer set search_path from current as $fn$
--   declare
--       v_ids bigint[];
--       v_hashes bytea[];
--   begin
--       with due as (
--           select a.id, a.hash, a.action, a.source from search_outbox_audit a
--            where a.id > p_after and a.at < p_before
--              -- `at` rises with id: this bound ends the walk where nothing more is old enough.
--              and a.id <= least(p_max, (select b.id from search_outbox_audit b where b.at < p_before
--                                         order by b.at desc limit 1))
--              and (p_entity_type is null or a.entity_type = p_entity_type)
--              and (p_entity_id is null or a.entity_id = p_entity_id)
--              and (p_trace_id is null or a.trace_id = p_trace_id)
--              and (p_action is null or a.action = p_action)
--              and (p_actor is null or a.actor = p_actor)
--              and (p_batch_id is null or a.batch_id = p_batch_id)
--              and (p_since is null or a.at >= p_since)
--            order by a.id limit p_limit
--              for update skip locked
--       )
--       select array_agg(d.id order by d.id), array_agg(d.hash order by d.id), count(*),
--              count(*) filter (where not (d.source = 'daemon' and d.action like '%PRUNE_SUMMARY')), min(d.id), max(d.id)
--         into v_ids, v_hashes, removed, acts, first, last
--         from due d;
--       -- The hashes first, then the rows: the trigger above lets a row go only in this order.
--       insert into search_outbox_audit_pruned (id, hash) select * from unnest(v_ids, v_hashes);
--       delete from search_outbox_audit a where a.id = any (v_ids);
--       return next;
--   end
--   $fn$;
--   revoke execute on function search_outbox_audit_prune(
--       timestamptz, bigint, bigint, int, text, text, text, text, text, uuid, timestamptz) from public;
--   do $undo$
--   declare
--       ours regprocedure;
--   begin
--       for ours in
--           select p.oid from pg_proc p join pg_namespace n on n.oid = p.pronamespace
--            where n.nspname = current_schema() and p.prosecdef and p.proname like 'search\_outbox\_audit\_%'
--       loop
--           execute format('alter function %s set search_path = pg_catalog, %I, pg_temp', ours, current_schema());
--       end loop;
--       perform search_outbox_grant_roles();
--   end $undo$;
--   delete from search_outbox_migrations where name = '0074_audit_trail';

create or replace function search_outbox_audit_begin() returns trigger
language plpgsql security definer set search_path from current as $fn$
begin
    if tg_relid <> 'search_outbox_audit'::regclass then
        raise exception '% is not for table %', 'search_outbox_audit_begin()', tg_relid::regclass
            using errcode = 'insufficient_privilege';
    end if;
    perform from search_outbox_audit_head for no key update;
    return null;
end
$fn$;

create or replace function search_outbox_audit_chain() returns trigger
language plpgsql security definer set search_path from current as $fn$
declare
    head search_outbox_audit_head;
    last_id bigint;
begin
    if tg_relid <> 'search_outbox_audit'::regclass then
        raise exception '% is not for table %', 'search_outbox_audit_chain()', tg_relid::regclass
            using errcode = 'insufficient_privilege';
    end if;
    -- The head is locked since the statement began. What lies above it are the rows of this very statement.
    select * into strict head from search_outbox_audit_head;
    select a.id, a.hash into last_id, new.prev_hash from search_outbox_audit a
     where a.id > head.id order by a.id desc limit 1;
    if not found then
        last_id := head.id;
        new.prev_hash := head.hash;
    end if;
    new.id := last_id + 1;
    new.at := clock_timestamp();
    new.hash := sha256(new.prev_hash || convert_to(search_outbox_audit_text(new), 'UTF8'));
    return new;
end
$fn$;

create or replace function search_outbox_audit_end() returns trigger
language plpgsql security definer set search_path from current as $fn$
begin
    if tg_relid <> 'search_outbox_audit'::regclass then
        raise exception '% is not for table %', 'search_outbox_audit_end()', tg_relid::regclass
            using errcode = 'insufficient_privilege';
    end if;
    update search_outbox_audit_head h set id = a.id, hash = a.hash
      from (select id, hash from search_outbox_audit order by id desc limit 1) a
     where a.id > h.id;
    return null;
end
$fn$;

create or replace function search_outbox_audit_refuse() returns trigger
language plpgsql security definer set search_path from current as $fn$
begin
    if tg_relid <> 'search_outbox_audit'::regclass then
        raise exception '% is not for table %', 'search_outbox_audit_refuse()', tg_relid::regclass
            using errcode = 'insufficient_privilege';
    end if;
    if tg_op = 'DELETE' and exists (
            select from search_outbox_audit_pruned p where p.id = old.id and p.hash = old.hash) then
        return old;
    end if;
    raise exception 'search_outbox_audit takes INSERT only: % refused', tg_op
        using errcode = 'object_not_in_prerequisite_state', hint = 'Use `outbox audit prune` to remove old rows.';
end
$fn$;

-- One step of a prune: rows above p_after and up to p_max by id, older than p_before and than seven days, and one row that
-- says so. `acts` counts what is more than an earlier prune's own summary, `last` is where the next step begins.
drop function search_outbox_audit_prune(
    timestamptz, bigint, bigint, int, text, text, text, text, text, uuid, timestamptz);
create function search_outbox_audit_prune(
    p_before timestamptz, p_after bigint, p_max bigint, p_limit int,
    p_entity_type text default null, p_entity_id text default null, p_trace_id text default null,
    p_action text default null, p_actor text default null, p_batch_id uuid default null,
    p_since timestamptz default null,
    p_by text default null, p_role text default null, p_source text default 'daemon', p_reason text default null,
    p_archived boolean default null)
returns table (removed bigint, acts bigint, first bigint, last bigint)
language plpgsql security definer set search_path from current as $fn$
declare
    v_before constant timestamptz := least(p_before, clock_timestamp() - interval '7 days');
    v_ids bigint[];
    v_hashes bytea[];
begin
    with due as (
        select a.id, a.hash, a.action, a.source from search_outbox_audit a
         where a.id > p_after and a.at < v_before and p_before is not null
           -- `at` rises with id: this bound ends the walk where nothing more is old enough.
           and a.id <= least(p_max, (select b.id from search_outbox_audit b where b.at < v_before
                                      order by b.at desc limit 1))
           and (p_entity_type is null or a.entity_type = p_entity_type)
           and (p_entity_id is null or a.entity_id = p_entity_id)
           and (p_trace_id is null or a.trace_id = p_trace_id)
           and (p_action is null or a.action = p_action)
           and (p_actor is null or a.actor = p_actor)
           and (p_batch_id is null or a.batch_id = p_batch_id)
           and (p_since is null or a.at >= p_since)
         order by a.id limit p_limit
           for update skip locked
    )
    select array_agg(d.id order by d.id), array_agg(d.hash order by d.id), count(*),
           count(*) filter (where not (d.source = 'daemon' and d.action like '%PRUNE_SUMMARY')), min(d.id), max(d.id)
      into v_ids, v_hashes, removed, acts, first, last
      from due d;
    if removed > 0 then
        -- The hashes first, then the rows: the trigger above lets a row go only in this order.
        insert into search_outbox_audit_pruned (id, hash) select * from unnest(v_ids, v_hashes);
        delete from search_outbox_audit a where a.id = any (v_ids);
        -- `by` is what the caller says, as in every row; `login` is who it was. Last, because it locks the chain.
        insert into search_outbox_audit (action, actor, role, source, reason, detail)
        values ('AUDIT_PRUNE_SUMMARY', coalesce(p_by, session_user), p_role, p_source, p_reason,
                jsonb_strip_nulls(jsonb_build_object(
                    'removed', removed, 'first', first, 'last', last, 'before', v_before, 'archived', p_archived,
                    'login', session_user,
                    'filter', jsonb_build_object(
                        'entity_type', p_entity_type, 'entity_id', p_entity_id, 'trace_id', p_trace_id,
                        'action', p_action, 'actor', p_actor, 'batch_id', p_batch_id, 'since', p_since)))::json);
    end if;
    return next;
end
$fn$;

do $do$
declare
    ours regprocedure;
    remaining text;
begin
    for ours in
        select p.oid from pg_proc p join pg_namespace n on n.oid = p.pronamespace
         where n.nspname = current_schema() and p.prosecdef and p.proname like 'search\_outbox\_audit\_%'
    loop
        execute format('alter function %s set search_path = pg_catalog, %I, pg_temp', ours, current_schema());
        execute format('revoke execute on function %s from public', ours);
    end loop;
    select string_agg(statement, E'\n') into remaining from search_outbox_grant_roles() as statement;
    -- Where there are none at all, 0050_roles has said so.
    if remaining is not null and remaining not like '%create role%' then
        raise warning 'the roles of docs/security.md are not complete: this role may not make or change them'
            using hint = E'Everything works without them. To have them, run as a role that may:\n' || remaining;
    end if;
end
$do$;
