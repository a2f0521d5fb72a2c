-- Why:  events for Kafka: `search_outbox_log` is only inserted into, and a publication of its inserts is what Debezium
--       reads. `outbox_enqueue`, `outbox_refresh` and the triggers of `outbox attach` write there from now on, in the
--       producer's transaction; what waits in search_outbox_events is still projected from there, and what daemons and
--       operators write (replays, repairs, `outbox refresh`) stays there.
--       One partition per day (UTC). A day is dropped as a whole, which costs no vacuum. That is safe at any time: the
--       connector reads the write-ahead log, which its slot keeps, and not the table; the table serves a first start,
--       or a slot that was lost. A row for which there is no day goes to the default partition: no insert fails.
--       `entity_key` becomes the key of the record, and `event` the header that describes it: one header is read in
--       half of the time that one per column takes. A trigger fills them, because PostgreSQL publishes no generated
--       column before 18. The last fields are the transaction, whose record may come before anyone sees what it
--       wrote, and the database's id.
--       A known idempotency key returns its event as long as its day is kept: unique within a day by an index, and
--       over days by an advisory lock on the key.
-- Undo (a connector must have read everything; after `select search_outbox_log_off()` producers write to the table):
--   select search_outbox_log_off();
--   drop publication if exists outbox_log;
--   drop table if exists search_outbox_log;
--   drop function if exists search_outbox_log_off();
--   drop function if exists search_outbox_log_redirect(text, text);
--   drop function if exists search_outbox_log_grant();
--   drop function if exists search_outbox_log_prune(interval, int);
--   drop function if exists search_outbox_log_days(int);
--   drop function if exists search_outbox_log_fill();
--   delete from search_outbox_migrations where name = 'log';
-- Roles: producer INSERT and SELECT (id, idempotency_key); projector and operator SELECT, and EXECUTE on the functions
--       that make and drop days; reader SELECT without the payload.

create table if not exists search_outbox_log (
    id               uuid not null,
    entity_type      text not null,
    entity_id        text not null,
    op               text not null,
    event_version    bigint not null default nextval('search_outbox_version'),
    payload          json,
    routing          text,
    idempotency_key  text,
    traceparent      text,
    tracestate       text,
    created_at       timestamptz not null default now(),
    entity_key       text not null,
    has_payload      boolean not null,
    event            text not null
) partition by range (created_at);

do $do$
begin
    execute format('alter table search_outbox_log alter column id set default %s()',
        case when current_setting('server_version_num')::int < 180000 then 'search_outbox_uuidv7' else 'uuidv7' end);
end
$do$;

do $do$
begin
    execute format($text$
create or replace function search_outbox_log_fill() returns trigger
language plpgsql as $fn$
begin
    new.entity_key := new.entity_type || ':' || new.entity_id;
    new.has_payload := new.payload is not null;
    new.event := json_build_array(
        new.op, new.event_version, new.entity_type, new.entity_id, new.routing,
        case when isfinite(new.created_at) then round(extract(epoch from new.created_at) * 1000000) end,
        new.has_payload, new.traceparent, pg_current_xact_id()::text::bigint, %I.search_outbox_database())::text;
    return new;
end
$fn$
    $text$, current_schema());
end
$do$;

create or replace trigger search_outbox_log_fill before insert on search_outbox_log
    for each row execute function search_outbox_log_fill();
alter table search_outbox_log enable always trigger search_outbox_log_fill;

create table if not exists search_outbox_log_default partition of search_outbox_log default;
create unique index if not exists search_outbox_log_default_key
    on search_outbox_log_default (idempotency_key) where idempotency_key is not null;
-- Old rows of the default partition are deleted, which must work beside a publication of all tables too.
alter table search_outbox_log_default replica identity full;

-- Makes the partitions of today and of the days ahead, and says how many. ATTACH, not PARTITION OF: that one would wait
-- for every open transaction that has written an event, and hold up the next ones.
create or replace function search_outbox_log_days(ahead int) returns int
language plpgsql security definer set search_path from current set lock_timeout = '1500ms' as $fn$
declare
    home constant text := (
        select relnamespace::regnamespace::text from pg_class where oid = 'search_outbox_log'::regclass);
    day date;
    name text;
    starts timestamptz;
    ends timestamptz;
    made int := 0;
begin
    if ahead not between 0 and 366 then
        raise exception 'search_outbox_log_days: % is not from 0 to 366', ahead using errcode = '22023';
    end if;
    if not pg_try_advisory_xact_lock(hashtextextended('search_outbox_log_days', 0)) then
        return 0;  -- another session makes them
    end if;
    for day in select (now() at time zone 'utc')::date + n from generate_series(0, ahead) as n loop
        name := 'search_outbox_log_' || to_char(day, 'YYYYMMDD');
        starts := day::timestamp at time zone 'utc';
        ends := (day + 1)::timestamp at time zone 'utc';
        if to_regclass(format('%s.%I', home, name)) is not null
           -- Its rows stay where they are: to move one would be to publish it a second time.
           or exists (select from search_outbox_log_default where created_at >= starts and created_at < ends) then
            continue;
        end if;
        begin
            execute format('create table %s.%I (like %1$s.search_outbox_log including defaults)', home, name);
            execute format('create unique index %I on %s.%I (idempotency_key) where idempotency_key is not null',
                           name || '_key', home, name);
            execute format('alter table %s.search_outbox_log attach partition %1$s.%I for values from (%L) to (%L)',
                           home, name, starts, ends);
            made := made + 1;
        exception when check_violation or lock_not_available then
            null;  -- a row of this day came to the default partition meanwhile, or someone reads that: the next call
        end;
    end loop;
    return made;
end
$fn$;

-- Removes whole days that ended longer ago than `keep`, and such rows of the default partition, at most `most` of these
-- per call; says how many of both. A day is emptied first, which waits for no producer; to drop it, every producer has
-- to wait a moment, so that is tried for a short time only, and again by the next call.
create or replace function search_outbox_log_prune(keep interval, most int) returns int
language plpgsql security definer set search_path from current set lock_timeout = '200ms' as $fn$
declare
    old record;
    gone int := 0;
    deleted int;
begin
    if keep < interval '0' or most < 1 then
        raise exception 'search_outbox_log_prune: keep must not be negative, most not below 1' using errcode = '22023';
    end if;
    if not pg_try_advisory_xact_lock(hashtextextended('search_outbox_log_days', 0)) then
        return 0;
    end if;
    for old in
        select i.inhrelid::regclass as name from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
         where i.inhparent = 'search_outbox_log'::regclass and c.relname ~ '^search_outbox_log_\d{8}$'
           and (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp at time zone 'utc' <= now() - keep
         order by c.relname
    loop
        begin
            if pg_relation_size(old.name) > 0 then
                execute format('truncate %s', old.name);
            end if;
        exception when lock_not_available then
            continue;
        end;
        begin
            execute format('drop table %s', old.name);
            gone := gone + 1;
        exception when lock_not_available then
            null;
        end;
    end loop;
    delete from search_outbox_log_default where ctid in (
        select ctid from search_outbox_log_default where created_at < now() - keep limit most);
    get diagnostics deleted = row_count;
    return gone + deleted;
end
$fn$;

-- Gives the roles of 0013_roles their rights, and returns the statements that this role may not run; can be called
-- again at any time, for example when roles were made later.
create or replace function search_outbox_log_grant() returns setof text
language plpgsql set search_path from current as $fn$
declare
    prefix constant text := coalesce(nullif(current_setting('search_outbox.role_prefix', true), ''), 'search_outbox');
    told constant text := 'id, entity_type, entity_id, op, event_version, payload, routing, idempotency_key, '
        'traceparent, tracestate, created_at';
    all_but_payload constant text := (
        select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute
         where attrelid = 'search_outbox_log'::regclass and attnum > 0 and not attisdropped and attname <> 'payload');
    upkeep constant text := 'function search_outbox_log_days(int), search_outbox_log_prune(interval, int)';
    statement text;
begin
    for statement in
        select format('grant %s on %s to %I', g.rights, g.things, prefix || '_' || g.suffix)
          from (values
            ('producer', format('insert (%s), select (id, idempotency_key)', told), 'search_outbox_log'),
            ('projector', 'select', 'search_outbox_log, search_outbox_log_default'),
            ('projector', 'execute', upkeep),
            ('operator', 'select', 'search_outbox_log, search_outbox_log_default'),
            ('operator', 'execute', upkeep),
            ('reader', format('select (%s)', all_but_payload), 'search_outbox_log'),
            ('reader', format('select (%s)', all_but_payload), 'search_outbox_log_default')
          ) as g (suffix, rights, things)
    loop
        begin
            execute statement;
        exception when insufficient_privilege or undefined_object then
            return next statement || ';';
        end;
    end loop;
end
$fn$;

-- Lets the functions of attached tables insert into the one table instead of the other; returns those that belong to
-- another role. They go on as before, and their own `outbox attach` command renews them.
create or replace function search_outbox_log_redirect(old text, new text) returns setof text
language plpgsql set search_path from current as $fn$
declare
    found record;
begin
    for found in
        select p.oid::regprocedure as name, pg_get_functiondef(p.oid) as was,
               regexp_replace(pg_get_functiondef(p.oid),
                   '(insert into (?:"(?:[^"]|"")+"\.)?")' || old || '(" \()', '\1' || new || '\2', 'g') as becomes
          from pg_proc as p
         where p.proname like 'search\_outbox\_capture%' and p.prokind = 'f' and p.pronamespace = (
                   select relnamespace from pg_class where oid = 'search_outbox_events'::regclass)
    loop
        begin
            if found.becomes <> found.was then
                execute found.becomes;
            end if;
        exception when insufficient_privilege then
            return next found.name::text;
        end;
    end loop;
end
$fn$;

-- Producers write to search_outbox_events again. The table, its days and the publication stay, so that a connector can
-- read to the end.
create or replace function search_outbox_log_off() returns setof text
language plpgsql set search_path from current as $fn$
declare
    kept constant regproc := to_regproc('search_outbox_enqueue_table');
begin
    if kept is not null then
        execute replace(pg_get_functiondef(kept), 'search_outbox_enqueue_table', 'outbox_enqueue');
        execute format('drop function %s', kept::oid::regprocedure);
    end if;
    delete from search_outbox_migrations where name = 'log';
    return query select search_outbox_log_redirect('search_outbox_log', 'search_outbox_events');
end
$fn$;

do $do$
declare
    ours record;
    remaining text;
begin
    for ours in
        select p.oid::regprocedure as named, p.proconfig is not null as has_path from pg_proc as p
         where p.pronamespace = current_schema()::regnamespace and p.proname like 'search\_outbox\_log\_%'
    loop
        if ours.has_path then
            execute format('alter function %s set search_path = pg_catalog, %I, pg_temp', ours.named, current_schema());
        end if;
        execute format('revoke execute on function %s from public', ours.named);
    end loop;
    perform search_outbox_seal(current_schema()::regnamespace);
    perform search_outbox_limit_payloads();
    perform search_outbox_log_days(7);
    if not exists (select from pg_publication where pubname = 'outbox_log') then
        create publication outbox_log for table search_outbox_log
            with (publish = 'insert', publish_via_partition_root = true);
    end if;
    select string_agg(statement, E'\n') into remaining from search_outbox_log_grant() as statement;
    if remaining is not null then
        raise warning 'the roles of docs/security.md lack rights on search_outbox_log: this role may not grant them'
            using hint = E'To have them, run as a role that may:\n' || remaining;
    end if;
end
$do$;

-- The switch. `outbox_enqueue` keeps its refusals, word for word: only what follows them is another. The function as it
-- was is kept under another name, for the way back.
do $do$
declare
    refusals_end constant text := 'typed_id := entity_id;';
    kept text;
    body text;
    others text;
begin
    if to_regproc('search_outbox_enqueue_table') is null then
        execute replace(pg_get_functiondef('outbox_enqueue'::regproc), 'outbox_enqueue', 'search_outbox_enqueue_table');
    end if;
    select replace(pg_get_functiondef(oid), 'search_outbox_enqueue_table', 'outbox_enqueue'),
           replace(prosrc, 'search_outbox_enqueue_table', 'outbox_enqueue')
      into kept, body from pg_proc where oid = 'search_outbox_enqueue_table'::regproc;
    if strpos(body, refusals_end) = 0 then
        raise exception 'outbox_enqueue is not the function that this version of the product made'
            using hint = 'Put it back as sql/0006_enqueue.sql has it, and run this again.';
    end if;
    execute replace(kept, body, split_part(body, refusals_end, 1) || refusals_end || $tail$
    if idempotency_key is not null then
        perform pg_advisory_xact_lock(hashtextextended('search_outbox_log:' || idempotency_key, 0));
        select l.id into event_id from search_outbox_log as l
        where l.idempotency_key = outbox_enqueue.idempotency_key limit 1;
        if event_id is null then
            select e.id into event_id from search_outbox_events as e
            where e.idempotency_key = outbox_enqueue.idempotency_key;
        end if;
        if event_id is not null then
            return event_id;
        end if;
    end if;
    insert into search_outbox_log
        (entity_type, entity_id, op, payload, event_version, routing, idempotency_key, traceparent)
    values (entity_type, typed_id, op, payload, coalesce(version, nextval('search_outbox_version')), routing,
            idempotency_key, traceparent)
    returning id into event_id;
    return event_id;
end
$tail$);
    select string_agg(name, ', ') into others
      from search_outbox_log_redirect('search_outbox_events', 'search_outbox_log') as name;
    if others is not null then
        raise warning 'these functions of attached tables belong to other roles and still write to search_outbox_events: %',
            others using hint = 'Nothing is lost. `outbox doctor` names the command that renews each.';
    end if;
end
$do$;
