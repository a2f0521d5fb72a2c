-- Why:  the audit must show whether someone has changed, removed or inserted a row. Every INSERT is chained by these
--       triggers: the head row is locked once a statement, ids are given without gaps under that lock, and each hash
--       covers the row and the hash before it. Rows cannot be updated; one may go only when its (id, hash) stays in
--       search_outbox_audit_pruned, which the prune function writes: so `outbox audit verify` passes over its holes.
--       The functions are definer's: who may INSERT needs no right on the head, and who may prune none on the rest.
--       (Measured: 60 us a row, its indexes included. The lock lasts until the act commits, so whoever audits does it last.)
-- Undo:
--   drop trigger if exists search_outbox_audit_begin on search_outbox_audit;
--   drop trigger if exists search_outbox_audit_chain on search_outbox_audit;
--   drop trigger if exists search_outbox_audit_end on search_outbox_audit;
--   drop trigger if exists search_outbox_audit_refuse on search_outbox_audit;
--   drop trigger if exists search_outbox_audit_refuse_truncate on search_outbox_audit;
--   drop function if exists search_outbox_audit_begin(), search_outbox_audit_chain(), search_outbox_audit_end(),
--       search_outbox_audit_refuse(), search_outbox_audit_text(search_outbox_audit),
--       search_outbox_audit_prune(timestamptz, bigint, bigint, int, text, text, text, text, text, uuid, timestamptz);
--   drop index if exists search_outbox_audit_action_idx, search_outbox_audit_actor_idx;
--   drop table if exists search_outbox_audit_head;
--   delete from search_outbox_migrations where name = '0020_audit_chain';
-- Roles (granted by a later migration): projector and operator EXECUTE on search_outbox_audit_prune; reader SELECT on
--       the head.

create table search_outbox_audit_head (
    only_one  boolean primary key default true check (only_one),
    id        bigint not null,
    hash      bytea not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
insert into search_outbox_audit_head (id, hash) values (0, sha256('search_outbox_audit'));

-- What a hash covers. The time counts in microseconds: its text would depend on the session's time zone.
create or replace function search_outbox_audit_text(a search_outbox_audit) returns text
language sql stable as $fn$
    select jsonb_build_array(a.id, (extract(epoch from a.at) * 1000000)::bigint, a.action, a.actor, a.role, a.source,
        a.reason, a.batch_id, a.event_id, a.entity_type, a.entity_id, a.trace_id, a.detail::text)::text
$fn$;

create or replace function search_outbox_audit_begin() returns trigger
language plpgsql security definer set search_path from current as $fn$
declare
    head search_outbox_audit_head;
begin
    select * into strict head from search_outbox_audit_head for no key update;
    perform set_config('search_outbox.chain', head.id || ':' || encode(head.hash, 'hex'), true);
    return null;
end
$fn$;

create or replace function search_outbox_audit_chain() returns trigger
language plpgsql security definer set search_path from current as $fn$
declare
    chain text := current_setting('search_outbox.chain');
begin
    new.id := split_part(chain, ':', 1)::bigint + 1;
    new.at := clock_timestamp();
    new.prev_hash := decode(split_part(chain, ':', 2), 'hex');
    new.hash := sha256(new.prev_hash || convert_to(search_outbox_audit_text(new), 'UTF8'));
    perform set_config('search_outbox.chain', new.id || ':' || encode(new.hash, 'hex'), true);
    return new;
end
$fn$;

create or replace function search_outbox_audit_end() returns trigger
language plpgsql security definer set search_path from current as $fn$
declare
    chain text := current_setting('search_outbox.chain');
begin
    update search_outbox_audit_head
       set id = split_part(chain, ':', 1)::bigint, hash = decode(split_part(chain, ':', 2), 'hex')
     where id <> split_part(chain, ':', 1)::bigint;
    return null;
end
$fn$;

create or replace function search_outbox_audit_refuse() returns trigger
language plpgsql security definer set search_path from current as $fn$
begin
    if tg_op = 'DELETE' and exists (
            select from search_outbox_audit_pruned p where p.id = old.id and p.hash = old.hash) then
        return old;
    end if;
    raise exception 'search_outbox_audit takes INSERT only: % refused', tg_op
        using errcode = 'object_not_in_prerequisite_state', hint = 'Use `outbox audit prune` to remove old rows.';
end
$fn$;

create or replace trigger search_outbox_audit_begin before insert on search_outbox_audit
    for each statement execute function search_outbox_audit_begin();
create or replace trigger search_outbox_audit_chain before insert on search_outbox_audit
    for each row execute function search_outbox_audit_chain();
create or replace trigger search_outbox_audit_end after insert on search_outbox_audit
    for each statement execute function search_outbox_audit_end();
create or replace trigger search_outbox_audit_refuse before update or delete on search_outbox_audit
    for each row execute function search_outbox_audit_refuse();
create or replace trigger search_outbox_audit_refuse_truncate before truncate on search_outbox_audit
    for each statement execute function search_outbox_audit_refuse();
alter table search_outbox_audit enable always trigger search_outbox_audit_begin;
alter table search_outbox_audit enable always trigger search_outbox_audit_chain;
alter table search_outbox_audit enable always trigger search_outbox_audit_end;
alter table search_outbox_audit enable always trigger search_outbox_audit_refuse;
alter table search_outbox_audit enable always trigger search_outbox_audit_refuse_truncate;

-- One step of a prune: rows above p_after and up to p_max by id, older than p_before. `acts` counts what is more than
-- an earlier prune's own summary, `last` is where the next step begins.
create or replace function search_outbox_audit_prune(
    p_before timestamptz, p_after bigint, p_max bigint, p_limit int,
    p_entity_type text default null, p_entity_id text default null, p_trace_id text default null,
    p_action text default null, p_actor text default null, p_batch_id uuid default null,
    p_since timestamptz default null)
returns table (removed bigint, acts bigint, first bigint, last bigint)
language plpgsql security definer set search_path from current as $fn$
declare
    v_ids bigint[];
    v_hashes bytea[];
begin
    with due as (
        select a.id, a.hash, a.action, a.source from search_outbox_audit a
         where a.id > p_after and a.at < p_before
           -- `at` rises with id: this bound ends the walk where nothing more is old enough.
           and a.id <= least(p_max, (select b.id from search_outbox_audit b where b.at < p_before
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
    -- The hashes first, then the rows: the trigger above lets a row go only in this order.
    insert into search_outbox_audit_pruned (id, hash) select * from unnest(v_ids, v_hashes);
    delete from search_outbox_audit a where a.id = any (v_ids);
    return next;
end
$fn$;
revoke execute on function search_outbox_audit_prune(
    timestamptz, bigint, bigint, int, text, text, text, text, text, uuid, timestamptz) from public;

-- `outbox audit list` by action or actor, newest first. The audit alone pays for them.
create index search_outbox_audit_action_idx on search_outbox_audit (action, id);
create index search_outbox_audit_actor_idx on search_outbox_audit (actor, id);
