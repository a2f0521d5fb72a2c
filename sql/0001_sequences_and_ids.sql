-- Why:  claim order, default versions and time-ordered ids, which the table needs as column defaults.
--       Random uuids spread inserts and settles over the whole primary key; time-ordered ones touch its right edge.
--       Both sequences have cache 1: a cached version could be older than one that another session has used.
--       `search_outbox_raise_version` moves the version sequence above a version that an index holds and this database
--       never gave out (it was restored, or failed over to a replica that lagged): never back, and not above 2^62,
--       where the sequence would soon run out.
-- Undo:
--   drop function if exists search_outbox_raise_version(bigint);
--   drop function if exists search_outbox_uuidv7();
--   drop sequence if exists search_outbox_seq, search_outbox_version;
--   delete from search_outbox_migrations where name = '0001_sequences_and_ids';
-- Roles (granted by a later migration): producer USAGE on both sequences; projector and
--       operator EXECUTE on the function.

create sequence if not exists search_outbox_seq as bigint cache 1;
create sequence if not exists search_outbox_version as bigint cache 1;

-- PostgreSQL 18 has uuidv7(); before that this is the same layout: 48 bits of milliseconds, 12 bits of their
-- fraction in place of rand_a, the rest random.
do $do$
begin
    if current_setting('server_version_num')::int < 180000 then
        create or replace function search_outbox_uuidv7() returns uuid
        language sql volatile parallel safe as $fn$
            select encode(
                substring(int8send(us / 1000) from 3)
                || set_byte(set_byte('\x0000'::bytea, 0, (112 | (fraction >> 8))::int), 1, (fraction & 255)::int)
                || set_byte(substring(random from 9), 0, (get_byte(random, 8) & 63) | 128),
                'hex')::uuid
            from (select us, (us % 1000) * 4096 / 1000 as fraction, uuid_send(gen_random_uuid()) as random
                  from (select (extract(epoch from clock_timestamp()) * 1000000)::bigint as us) as now) as parts
        $fn$;
    end if;
end
$do$;

-- The owner's rights, because the projector may not set a sequence: by this it can only be moved on.
create or replace function search_outbox_raise_version(seen bigint) returns bigint
language plpgsql security definer set search_path from current as $fn$
declare
    now_at bigint;
begin
    if seen > 4611686018427387904 then
        raise exception 'version % is above 2^62: it is not followed', seen using errcode = '22003',
            hint = 'Someone wrote it by hand. Rebuild the index with `outbox rebuild`.';
    end if;
    perform pg_advisory_xact_lock(hashtextextended('search_outbox_version', 0));
    select last_value into now_at from search_outbox_version;
    if now_at < seen then
        -- nextval waits for no lock: what others draw between these two statements must stay below.
        now_at := setval('search_outbox_version', seen + 1000000);
    end if;
    return now_at;
end
$fn$;
