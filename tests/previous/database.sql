SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE FUNCTION public.outbox_enqueue(entity_type text, entity_id text, op text, payload json DEFAULT NULL::json, version bigint DEFAULT NULL::bigint, routing text DEFAULT NULL::text, idempotency_key text DEFAULT NULL::text, traceparent text DEFAULT NULL::text) RETURNS uuid
    LANGUAGE plpgsql
    SET search_path TO '$user', 'public'
    AS $$
#variable_conflict use_variable
declare
    event_id uuid;
    -- An adopted table keeps its own column type (uuid, say), which text does not become by itself in an INSERT.
    typed_id search_outbox_events.entity_id%type;
begin
    if coalesce(entity_type, '') = '' then
        raise exception 'outbox_enqueue: entity_type is empty' using errcode = '22023',
            hint = 'Give the kind of the entity, for example ''article''.';
    end if;
    if coalesce(entity_id, '') = '' then
        raise exception 'outbox_enqueue: entity_id is empty' using errcode = '22023',
            hint = 'Give the id of the entity; it names the document.';
    end if;
    if octet_length(convert_to(entity_id, 'UTF8')) > 512 then
        raise exception 'outbox_enqueue: entity_id has % bytes, 512 at most', octet_length(convert_to(entity_id, 'UTF8'))
            using errcode = '22001', hint = 'Elasticsearch takes document ids of at most 512 bytes.';
    end if;
    if op is null or op not in ('upsert', 'delete') then
        raise exception 'outbox_enqueue: unknown op %', coalesce(quote_literal(op), 'null') using errcode = '22023',
            hint = 'op is ''upsert'' or ''delete''.';
    end if;
    if json_typeof(payload) <> 'object' then
        raise exception 'outbox_enqueue: payload is a json %, not an object', json_typeof(payload)
            using errcode = '22023', hint = 'A document is a json object; null means: look it up in the view.';
    end if;
    if version < 0 then
        raise exception 'outbox_enqueue: version % is negative', version using errcode = '22003',
            hint = 'Elasticsearch takes external versions of 0 or more; leave it out for the default.';
    end if;
    typed_id := entity_id;
    insert into search_outbox_events
        (entity_type, entity_id, op, payload, event_version, routing, idempotency_key, traceparent)
    values (entity_type, typed_id, op, payload, coalesce(version, nextval('search_outbox_version')), routing,
            idempotency_key, traceparent)
    on conflict do nothing
    returning id into event_id;
    if event_id is null then
        select e.id into event_id from search_outbox_events as e
        where e.idempotency_key = outbox_enqueue.idempotency_key;
    end if;
    return event_id;
end
$$;
CREATE FUNCTION public.search_outbox_audit_begin() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO '$user', 'public'
    AS $$
declare
    head search_outbox_audit_head;
begin
    select * into strict head from search_outbox_audit_head for no key update;
    perform set_config('search_outbox.chain', head.id || ':' || encode(head.hash, 'hex'), true);
    return null;
end
$$;
CREATE FUNCTION public.search_outbox_audit_chain() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO '$user', 'public'
    AS $$
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
$$;
CREATE FUNCTION public.search_outbox_audit_end() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO '$user', 'public'
    AS $$
declare
    chain text := current_setting('search_outbox.chain');
begin
    update search_outbox_audit_head
       set id = split_part(chain, ':', 1)::bigint, hash = decode(split_part(chain, ':', 2), 'hex')
     where id <> split_part(chain, ':', 1)::bigint;
    return null;
end
$$;
CREATE FUNCTION public.search_outbox_audit_prune(p_before timestamp with time zone, p_after bigint, p_max bigint, p_limit integer, p_entity_type text DEFAULT NULL::text, p_entity_id text DEFAULT NULL::text, p_trace_id text DEFAULT NULL::text, p_action text DEFAULT NULL::text, p_actor text DEFAULT NULL::text, p_batch_id uuid DEFAULT NULL::uuid, p_since timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS TABLE(removed bigint, acts bigint, first bigint, last bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO '$user', 'public'
    AS $$
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
$$;
CREATE FUNCTION public.search_outbox_audit_refuse() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO '$user', 'public'
    AS $$
begin
    if tg_op = 'DELETE' and exists (
            select from search_outbox_audit_pruned p where p.id = old.id and p.hash = old.hash) then
        return old;
    end if;
    raise exception 'search_outbox_audit takes INSERT only: % refused', tg_op
        using errcode = 'object_not_in_prerequisite_state', hint = 'Use `outbox audit prune` to remove old rows.';
end
$$;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.search_outbox_audit (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    action text NOT NULL,
    actor text NOT NULL,
    role text,
    source text NOT NULL,
    reason text,
    batch_id uuid,
    event_id uuid,
    entity_type text,
    entity_id text,
    trace_id text,
    detail json,
    prev_hash bytea,
    hash bytea,
    CONSTRAINT search_outbox_audit_source_check CHECK ((source = ANY (ARRAY['cli'::text, 'api'::text, 'console'::text, 'daemon'::text])))
);
CREATE FUNCTION public.search_outbox_audit_text(a public.search_outbox_audit) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select jsonb_build_array(a.id, (extract(epoch from a.at) * 1000000)::bigint, a.action, a.actor, a.role, a.source,
        a.reason, a.batch_id, a.event_id, a.entity_type, a.entity_id, a.trace_id, a.detail::text)::text
$$;
CREATE FUNCTION public.search_outbox_discards() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO '$user', 'public'
    AS $$
begin
    if tg_op = 'UPDATE' and new.status = 'discarded' then
        insert into search_outbox_discards (event_id, entity_type, entity_id, event_version, seq)
        values (new.id, new.entity_type, new.entity_id::text, new.event_version, new.seq)
            on conflict (event_id) do nothing;
        return new;
    end if;
    delete from search_outbox_discards where event_id = old.id;
    return case when tg_op = 'UPDATE' then new else old end;
end
$$;
CREATE FUNCTION public.search_outbox_guard() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO '$user', 'public'
    AS $$
begin
    if new.status in ('done', 'discarded') then
        new.processed_at := coalesce(new.processed_at, clock_timestamp());
        new.failed_at := null;
    elsif new.status = 'failed' then
        new.failed_at := coalesce(new.failed_at, clock_timestamp());
        new.processed_at := null;
    else
        new.processed_at := null;
        new.failed_at := null;
        new.seq := coalesce(new.seq, nextval('search_outbox_seq'));
    end if;
    if new.status <> 'processing' then
        new.owner := null;
        new.lease_until := null;
        new.processing_started_at := null;
        new.next_retry_at := null;
    end if;
    if new.status = 'pending' then
        new.attempts := 0;
        new.abandoned_count := 0;
    end if;
    if new.status in ('pending', 'done') then
        new.error_reason := null;
        new.error_code := null;
        new.error := null;
        new.error_fingerprint := null;
        new.error_detail := null;
        new.dead_reason := null;
    end if;
    new.updated_at := clock_timestamp();
    return new;
end
$$;
CREATE FUNCTION public.search_outbox_refuse_truncate() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    raise exception 'TRUNCATE of %.% is refused: it is attached to the outbox', tg_table_schema, tg_table_name
        using errcode = '55006', hint = 'Use DELETE, which removes the documents too, or run `outbox detach` first.';
end
$$;
CREATE TABLE public.search_outbox_attempts (
    event_id uuid NOT NULL,
    attempt integer NOT NULL,
    replay integer DEFAULT 0 NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    worker text,
    reason text,
    code text,
    error text,
    detail json
);
CREATE TABLE public.search_outbox_audit_head (
    only_one boolean DEFAULT true NOT NULL,
    id bigint NOT NULL,
    hash bytea NOT NULL,
    CONSTRAINT search_outbox_audit_head_only_one_check CHECK (only_one)
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='500');
ALTER TABLE public.search_outbox_audit ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.search_outbox_audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.search_outbox_audit_pruned (
    id bigint NOT NULL,
    hash bytea,
    pruned_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
CREATE TABLE public.search_outbox_controls (
    scope text NOT NULL,
    kind text DEFAULT 'pause'::text NOT NULL,
    paused_by text NOT NULL,
    reason text NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    until timestamp with time zone,
    CONSTRAINT search_outbox_controls_kind_check CHECK ((kind = ANY (ARRAY['pause'::text, 'let_fail'::text, 'webhook_disabled'::text])))
);
CREATE TABLE public.search_outbox_discards (
    event_id uuid NOT NULL,
    entity_type text NOT NULL,
    entity_id text NOT NULL,
    event_version bigint NOT NULL,
    seq bigint,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
CREATE SEQUENCE public.search_outbox_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE public.search_outbox_version
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE public.search_outbox_events (
    id uuid DEFAULT uuidv7() NOT NULL,
    seq bigint DEFAULT nextval('public.search_outbox_seq'::regclass),
    entity_type text NOT NULL,
    entity_id text NOT NULL,
    op text NOT NULL,
    event_version bigint DEFAULT nextval('public.search_outbox_version'::regclass) NOT NULL,
    payload json,
    routing text,
    idempotency_key text,
    status text DEFAULT 'pending'::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    replay_count integer DEFAULT 0 NOT NULL,
    abandoned_count integer DEFAULT 0 NOT NULL,
    max_attempts integer,
    owner text,
    lease_until timestamp with time zone,
    lease_token uuid,
    processing_started_at timestamp with time zone,
    last_attempt_at timestamp with time zone,
    next_retry_at timestamp with time zone,
    processed_at timestamp with time zone,
    failed_at timestamp with time zone,
    error_reason text,
    error_code text,
    error text,
    error_fingerprint text,
    dead_reason text,
    error_detail json,
    last_replayed_at timestamp with time zone,
    last_replayed_by text,
    last_replayed_reason text,
    traceparent text,
    tracestate text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT search_outbox_events_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'processing'::text, 'done'::text, 'failed'::text, 'discarded'::text])))
)
WITH (fillfactor='45', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='20000', autovacuum_vacuum_cost_limit='2000', autovacuum_analyze_scale_factor='0.02', autovacuum_analyze_threshold='5000');
CREATE TABLE public.search_outbox_leases (
    token uuid NOT NULL,
    owner text NOT NULL,
    start_id uuid NOT NULL,
    lease_until timestamp with time zone NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ids uuid[] NOT NULL,
    counts jsonb DEFAULT '{}'::jsonb NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='500', autovacuum_vacuum_cost_delay='0', toast.autovacuum_vacuum_scale_factor='0', toast.autovacuum_vacuum_threshold='2000', toast.autovacuum_vacuum_cost_delay='0');
ALTER TABLE ONLY public.search_outbox_leases ALTER COLUMN ids SET STORAGE EXTERNAL;
CREATE TABLE public.search_outbox_migrations (
    name text NOT NULL,
    number integer,
    checksum text NOT NULL,
    mode text DEFAULT 'created'::text NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    applied_by text DEFAULT CURRENT_USER NOT NULL,
    duration_ms integer DEFAULT 0 NOT NULL,
    CONSTRAINT search_outbox_migrations_mode_check CHECK ((mode = ANY (ARRAY['created'::text, 'adopted'::text])))
);
CREATE TABLE public.search_outbox_quotas (
    entity_type text NOT NULL,
    max_in_flight integer,
    rate real,
    tokens real DEFAULT 0 NOT NULL,
    refilled_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT search_outbox_quotas_max_in_flight_check CHECK ((max_in_flight >= 0)),
    CONSTRAINT search_outbox_quotas_rate_check CHECK ((rate >= (0)::double precision))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='500');
CREATE TABLE public.search_outbox_rebuilds (
    id bigint NOT NULL,
    target text NOT NULL,
    old_index text,
    new_index text NOT NULL,
    entity_type text,
    mapping json,
    step text DEFAULT 'created'::text NOT NULL,
    status text DEFAULT 'running'::text NOT NULL,
    cursor json,
    total bigint,
    written bigint DEFAULT 0 NOT NULL,
    refused bigint DEFAULT 0 NOT NULL,
    refusals json,
    started_by text NOT NULL,
    reason text,
    owner text,
    lease_until timestamp with time zone,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    swapped_at timestamp with time zone,
    finished_at timestamp with time zone,
    error text,
    CONSTRAINT search_outbox_rebuilds_status_check CHECK ((status = ANY (ARRAY['running'::text, 'swapped'::text, 'finished'::text, 'cancelled'::text, 'rolled_back'::text, 'failed'::text])))
)
WITH (fillfactor='50');
ALTER TABLE public.search_outbox_rebuilds ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.search_outbox_rebuilds_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.search_outbox_replay_items (
    replay_id uuid NOT NULL,
    event_id uuid NOT NULL,
    ordinal integer NOT NULL,
    state text DEFAULT 'pinned'::text NOT NULL,
    skip_reason text,
    replay_count integer,
    outcome text,
    at timestamp with time zone,
    CONSTRAINT search_outbox_replay_items_state_check CHECK ((state = ANY (ARRAY['pinned'::text, 'replayed'::text, 'skipped'::text])))
)
WITH (fillfactor='70');
CREATE TABLE public.search_outbox_replays (
    id uuid DEFAULT uuidv7() NOT NULL,
    client_id text,
    status text DEFAULT 'queued'::text NOT NULL,
    requested_by text NOT NULL,
    requested_reason text NOT NULL,
    role text,
    source text DEFAULT 'cli'::text NOT NULL,
    filter json,
    rate real,
    webhook_url text,
    total integer DEFAULT 0 NOT NULL,
    replayed integer DEFAULT 0 NOT NULL,
    skipped integer DEFAULT 0 NOT NULL,
    done integer DEFAULT 0 NOT NULL,
    failed_again integer DEFAULT 0 NOT NULL,
    still_open integer DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    dispatched_at timestamp with time zone,
    settled_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    owner text,
    lease_token uuid,
    lease_until timestamp with time zone,
    poll_count integer DEFAULT 0 NOT NULL,
    last_poll_at timestamp with time zone,
    next_poll_at timestamp with time zone,
    cancelled_by text,
    failure_type text,
    reason text,
    CONSTRAINT search_outbox_replays_status_check CHECK ((status = ANY (ARRAY['queued'::text, 'dispatching'::text, 'following'::text, 'settled'::text, 'failed'::text, 'timeout'::text, 'cancelled'::text])))
)
WITH (fillfactor='70');
CREATE TABLE public.search_outbox_rollup (
    bucket timestamp with time zone NOT NULL,
    span text NOT NULL,
    entity_type text NOT NULL,
    outcome text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    n bigint DEFAULT 0 NOT NULL,
    CONSTRAINT search_outbox_rollup_span_check CHECK ((span = ANY (ARRAY['minute'::text, 'hour'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='1000');
CREATE TABLE public.search_outbox_verifications (
    id bigint NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    finished_at timestamp with time zone,
    started_by text,
    target text,
    entity_type text,
    sample bigint,
    status text DEFAULT 'running'::text NOT NULL,
    compared bigint DEFAULT 0 NOT NULL,
    missing bigint DEFAULT 0 NOT NULL,
    stale bigint DEFAULT 0 NOT NULL,
    orphaned bigint DEFAULT 0 NOT NULL,
    different bigint DEFAULT 0 NOT NULL,
    unknown bigint DEFAULT 0 NOT NULL,
    report json,
    error text,
    CONSTRAINT search_outbox_verifications_status_check CHECK ((status = ANY (ARRAY['running'::text, 'finished'::text, 'failed'::text, 'cancelled'::text])))
)
WITH (fillfactor='70');
ALTER TABLE public.search_outbox_verifications ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.search_outbox_verifications_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.search_outbox_webhook_deliveries (
    id uuid DEFAULT uuidv7() NOT NULL,
    type text NOT NULL,
    url text NOT NULL,
    body json NOT NULL,
    dedupe_key text,
    replay_id uuid,
    status text DEFAULT 'pending'::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    last_attempt_at timestamp with time zone,
    next_attempt_at timestamp with time zone DEFAULT clock_timestamp(),
    delivered_at timestamp with time zone,
    response_status integer,
    error text,
    redelivered_by text,
    CONSTRAINT search_outbox_webhook_deliveries_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'delivered'::text, 'given_up'::text, 'disabled'::text])))
)
WITH (fillfactor='70');
CREATE TABLE public.search_outbox_workers (
    worker_id text NOT NULL,
    start_id uuid NOT NULL,
    host text,
    pid integer,
    version text,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    heartbeat_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    heartbeat_seconds real DEFAULT 20 NOT NULL,
    entity_types text[],
    state text DEFAULT 'running'::text NOT NULL,
    rebuild_seen bigint
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='500');
INSERT INTO public.search_outbox_attempts VALUES
	('01a1de38-4135-77ff-b1b9-98ae177aef7e', 1, 0, '2026-11-15 08:00:37.233144+00', 'old-1', 'deterministic_exception', 'OUTBOX_PAYLOAD_UNSUPPORTED', 'ValueError: Unknown outbox op: ''not-a-real-op''', NULL),
	('01a1de38-4135-7b31-aaf5-74ea9d7d666a', 1, 0, '2026-11-15 08:00:37.233329+00', 'old-1', 'deterministic_exception', 'OUTBOX_PAYLOAD_UNSUPPORTED', 'ValueError: Unknown outbox op: ''not-a-real-op''', NULL),
	('01a1de38-4135-7b6e-88f5-9aca748eecc3', 1, 0, '2026-11-15 08:00:37.233335+00', 'old-1', 'deterministic_exception', 'OUTBOX_PAYLOAD_UNSUPPORTED', 'ValueError: Unknown outbox op: ''not-a-real-op''', NULL);
INSERT INTO public.search_outbox_audit VALUES
	(1, '2026-11-15 08:00:45.455351+00', 'PAUSED', 'ada', NULL, 'cli', 'before the upgrade', NULL, NULL, NULL, NULL, NULL, '{"scope":"*","kind":"pause"}', '\x5358f541b2794bd07ffad411ce6197a244d8f615da5d89a9fcf7dacb7e4d3b9a', '\x904dd4a46127c40525ffc702667e4256ab746097a9e554336c25154c4037fde0'),
	(2, '2026-11-15 08:00:53.179429+00', 'RESUMED', 'ada', NULL, 'cli', 'go on', NULL, NULL, NULL, NULL, NULL, '{"scope":"*","kind":"pause"}', '\x904dd4a46127c40525ffc702667e4256ab746097a9e554336c25154c4037fde0', '\x10bcabf06b527173697331317d07429e1364c9fcab4d9494ddf9bb93816ee451');
INSERT INTO public.search_outbox_audit_head VALUES
	(true, 2, '\x10bcabf06b527173697331317d07429e1364c9fcab4d9494ddf9bb93816ee451');
INSERT INTO public.search_outbox_discards VALUES
	('01a1de38-4135-7b6e-88f5-9aca748eecc3', 'odd', '3', 25, 25, '2026-11-15 08:00:54.594979+00');
INSERT INTO public.search_outbox_events VALUES
	('01a1de38-4135-77ff-b1b9-98ae177aef7e', 23, 'odd', '1', 'not-a-real-op', 23, NULL, NULL, NULL, 'failed', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705713+00', NULL, NULL, '2026-11-15 08:00:37.232526+00', 'deterministic_exception', 'OUTBOX_PAYLOAD_UNSUPPORTED', 'ValueError: Unknown outbox op: ''not-a-real-op''', '57f8e20cf9a1c8c6', 'non_retryable', NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.093166+00', '2026-11-15 08:00:37.232527+00'),
	('01a1de38-4135-7b31-aaf5-74ea9d7d666a', 24, 'odd', '2', 'not-a-real-op', 24, NULL, NULL, NULL, 'failed', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.70576+00', NULL, NULL, '2026-11-15 08:00:37.232836+00', 'deterministic_exception', 'OUTBOX_PAYLOAD_UNSUPPORTED', 'ValueError: Unknown outbox op: ''not-a-real-op''', '57f8e20cf9a1c8c6', 'non_retryable', NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.093166+00', '2026-11-15 08:00:37.232836+00'),
	('01a1de38-4122-7413-8d29-231c77a1e79d', 9, 'article', '9', 'upsert', 9, '{"title" : "title 9"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705657+00', NULL, '2026-11-15 08:00:37.232873+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.232874+00'),
	('01a1de38-4122-74a0-a24e-a1b9ada684bc', 15, 'article', '15', 'upsert', 15, '{"title" : "title 15"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.70568+00', NULL, '2026-11-15 08:00:37.232921+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.232921+00'),
	('01a1de38-4117-7dcf-96d2-30191cdac430', 1, 'article', '1', 'upsert', 1, '{"title" : "title 1"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705487+00', NULL, '2026-11-15 08:00:37.232937+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.232938+00'),
	('01a1de38-4129-74b7-b996-7322e46f42ac', 22, 'article', '20', 'delete', 22, NULL, NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705709+00', NULL, '2026-11-15 08:00:37.23295+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.080768+00', '2026-11-15 08:00:37.23295+00'),
	('01a1de38-4122-73f2-8d24-53c7178e7f0f', 8, 'article', '8', 'upsert', 8, '{"title" : "title 8"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705653+00', NULL, '2026-11-15 08:00:37.232967+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.232967+00'),
	('01a1de38-4122-7392-9ec0-6103744c3166', 4, 'article', '4', 'upsert', 4, '{"title" : "title 4"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705637+00', NULL, '2026-11-15 08:00:37.232975+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.232975+00'),
	('01a1de38-4122-745b-922b-a9f179d21bfc', 12, 'article', '12', 'upsert', 12, '{"title" : "title 12"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705668+00', NULL, '2026-11-15 08:00:37.232983+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.232983+00'),
	('01a1de38-4122-7514-bf2f-42380945dd8f', 20, 'article', '20', 'upsert', 20, '{"title" : "title 20"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705699+00', NULL, '2026-11-15 08:00:37.23299+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.23299+00'),
	('01a1de38-4122-74fc-a857-b510547f7714', 19, 'article', '19', 'upsert', 19, '{"title" : "title 19"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705695+00', NULL, '2026-11-15 08:00:37.232998+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.232998+00'),
	('01a1de38-4122-74ce-8cb0-a7f06697685e', 17, 'article', '17', 'upsert', 17, '{"title" : "title 17"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705687+00', NULL, '2026-11-15 08:00:37.233005+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.233006+00'),
	('01a1de38-4122-7472-a1fb-2b5bec500191', 13, 'article', '13', 'upsert', 13, '{"title" : "title 13"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705672+00', NULL, '2026-11-15 08:00:37.233013+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.233013+00'),
	('01a1de38-4135-7b6e-88f5-9aca748eecc3', 25, 'odd', '3', 'not-a-real-op', 25, NULL, NULL, NULL, 'discarded', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.70577+00', NULL, '2026-11-15 08:00:54.595386+00', NULL, 'deterministic_exception', 'OUTBOX_PAYLOAD_UNSUPPORTED', 'ValueError: Unknown outbox op: ''not-a-real-op''', '57f8e20cf9a1c8c6', 'non_retryable', NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.093166+00', '2026-11-15 08:00:54.595508+00'),
	('01a1de38-4122-74e6-85d6-84ef55c845a6', 18, 'article', '18', 'upsert', 18, '{"title" : "title 18"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705691+00', NULL, '2026-11-15 08:00:37.23302+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.23302+00'),
	('01a1de38-4122-73aa-8898-1a6e5c4734b1', 5, 'article', '5', 'upsert', 5, '{"title" : "title 5"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705641+00', NULL, '2026-11-15 08:00:37.233055+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.233055+00'),
	('01a1de38-4122-74b6-824f-e418f3a35846', 16, 'article', '16', 'upsert', 16, '{"title" : "title 16"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705684+00', NULL, '2026-11-15 08:00:37.233063+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.233063+00'),
	('01a1de38-4122-7444-999e-c4284008654c', 11, 'article', '11', 'upsert', 11, '{"title" : "title 11"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705664+00', NULL, '2026-11-15 08:00:37.23307+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.23307+00'),
	('01a1de38-4122-742b-abdf-cf72b935b3ed', 10, 'article', '10', 'upsert', 10, '{"title" : "title 10"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.70566+00', NULL, '2026-11-15 08:00:37.233077+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.233078+00'),
	('01a1de38-4122-73c2-9e7c-bf4c41aa0f3d', 6, 'article', '6', 'upsert', 6, '{"title" : "title 6"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705645+00', NULL, '2026-11-15 08:00:37.233085+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.233085+00'),
	('01a1de38-4122-72ce-9405-3dac554f5cc6', 2, 'article', '2', 'upsert', 2, '{"title" : "title 2"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705624+00', NULL, '2026-11-15 08:00:37.233092+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.233092+00'),
	('01a1de38-4122-7371-91da-e861078a9cda', 3, 'article', '3', 'upsert', 3, '{"title" : "title 3"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705632+00', NULL, '2026-11-15 08:00:37.233099+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.233099+00'),
	('01a1de38-4122-73db-a67f-3a1726acb72a', 7, 'article', '7', 'upsert', 7, '{"title" : "title 7"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705649+00', NULL, '2026-11-15 08:00:37.233107+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.233107+00'),
	('01a1de38-4129-70e2-83b5-b32c8b6f4e79', 21, 'article', '19', 'delete', 21, NULL, NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705703+00', NULL, '2026-11-15 08:00:37.233114+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.080768+00', '2026-11-15 08:00:37.233114+00'),
	('01a1de38-4122-7489-872d-2d9b0410a48a', 14, 'article', '14', 'upsert', 14, '{"title" : "title 14"}', NULL, NULL, 'done', 1, 0, 0, NULL, NULL, NULL, 'e00daa02-e732-4bcd-9791-626c42fdb59e', NULL, '2026-11-15 08:00:34.705676+00', NULL, '2026-11-15 08:00:37.233126+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:51.062605+00', '2026-11-15 08:00:37.233126+00'),
	('01a1de39-3953-7530-a3c8-2afbe35f1e8c', 26, 'article', '11', 'upsert', 26, '{"title" : "later 11"}', NULL, NULL, 'pending', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00'),
	('01a1de39-3953-78a3-97fe-5a2463602f04', 27, 'article', '12', 'upsert', 27, '{"title" : "later 12"}', NULL, NULL, 'pending', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00'),
	('01a1de39-3953-78d9-a753-06a9af019557', 28, 'article', '13', 'upsert', 28, '{"title" : "later 13"}', NULL, NULL, 'pending', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00'),
	('01a1de39-3953-78f2-8f68-391af38f4846', 29, 'article', '14', 'upsert', 29, '{"title" : "later 14"}', NULL, NULL, 'pending', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00'),
	('01a1de39-3953-7909-bf39-823a604b7cad', 30, 'article', '15', 'upsert', 30, '{"title" : "later 15"}', NULL, NULL, 'pending', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00'),
	('01a1de39-3953-791e-b1d8-a0a687b9a041', 31, 'article', '16', 'upsert', 31, '{"title" : "later 16"}', NULL, NULL, 'pending', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00'),
	('01a1de39-3953-7933-86fd-15c8b88ce7dc', 32, 'article', '17', 'upsert', 32, '{"title" : "later 17"}', NULL, NULL, 'pending', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00'),
	('01a1de39-3953-794e-b8f6-2a5a201a96ac', 33, 'article', '18', 'upsert', 33, '{"title" : "later 18"}', NULL, NULL, 'pending', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00'),
	('01a1de39-3953-7963-a086-9c2a3bff9492', 34, 'article', '19', 'upsert', 34, '{"title" : "later 19"}', NULL, NULL, 'pending', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00'),
	('01a1de39-3953-797d-adfd-d54e797dbd48', 35, 'article', '20', 'upsert', 35, '{"title" : "later 20"}', NULL, NULL, 'pending', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00'),
	('01a1de39-3953-7992-9b60-1cad9f0390f3', 36, 'article', '21', 'upsert', 36, '{"title" : "later 21"}', NULL, NULL, 'pending', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00'),
	('01a1de39-3953-79a5-b400-ee2cda865fba', 37, 'article', '22', 'upsert', 37, '{"title" : "later 22"}', NULL, NULL, 'pending', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00'),
	('01a1de39-3953-79b9-a1ca-74b71b646c14', 38, 'article', '23', 'upsert', 38, '{"title" : "later 23"}', NULL, NULL, 'pending', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00'),
	('01a1de39-3953-7a08-8c29-ee69164abb07', 42, 'article', '27', 'upsert', 42, '{"title" : "later 27"}', NULL, NULL, 'pending', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00'),
	('01a1de39-3953-7a1c-b014-e07cba751c4b', 43, 'article', '28', 'upsert', 43, '{"title" : "later 28"}', NULL, NULL, 'pending', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00'),
	('01a1de39-3953-7a44-bce0-6ce52326b76c', 45, 'article', '30', 'upsert', 45, '{"title" : "later 30"}', NULL, NULL, 'pending', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00'),
	('01a1de39-3953-7a30-84c9-00da8de5debd', 44, 'article', '29', 'upsert', 44, '{"title" : "later 29"}', NULL, NULL, 'pending', 2, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 07:59:54.612855+00', NULL, NULL, 'connect', NULL, 'no connection', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00'),
	('01a1de39-3953-79cd-9ca4-b9d204b202b2', 39, 'article', '24', 'upsert', 39, '{"title" : "later 24"}', NULL, NULL, 'processing', 1, 0, 0, NULL, 'old-2', '2026-11-15 07:59:54.680373+00', '00000000-0000-4000-8000-000000000001', '2026-11-15 07:58:54.680373+00', '2026-11-15 07:58:54.680373+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00'),
	('01a1de39-3953-79e1-bf56-099406e0c737', 40, 'article', '25', 'upsert', 40, '{"title" : "later 25"}', NULL, NULL, 'processing', 1, 0, 0, NULL, 'old-2', '2026-11-15 07:59:54.680373+00', '00000000-0000-4000-8000-000000000001', '2026-11-15 07:58:54.680373+00', '2026-11-15 07:58:54.680373+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00'),
	('01a1de39-3953-79f4-9672-0c64e4f7cbb3', 41, 'article', '26', 'upsert', 41, '{"title" : "later 26"}', NULL, NULL, 'processing', 1, 0, 0, NULL, 'old-2', '2026-11-15 07:59:54.680373+00', '00000000-0000-4000-8000-000000000001', '2026-11-15 07:58:54.680373+00', '2026-11-15 07:58:54.680373+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-15 08:00:54.611074+00', '2026-11-15 08:00:54.611074+00');
INSERT INTO public.search_outbox_leases VALUES
	('00000000-0000-4000-8000-000000000001', 'old-2', '00000000-0000-4000-8000-000000000002', '2026-11-15 07:59:54.680373+00', '2026-11-15 08:00:54.681251+00', '{01a1de39-3953-79cd-9ca4-b9d204b202b2,01a1de39-3953-79e1-bf56-099406e0c737,01a1de39-3953-79f4-9672-0c64e4f7cbb3}', '{"article": 3}');
INSERT INTO public.search_outbox_migrations VALUES
	('0000_migrations', 0, '284a0989af68905e0e4b7b8bbc3f884b125619bb637de3ed416ca57f0778a04d', 'created', '2026-11-15 07:59:46.512789+00', 'outbox', 70),
	('0001_sequences_and_ids', 1, '4dba0765f00f2ab42e1c98bd33b23d20ea4d172806351395c82d61e37d0ce0bb', 'created', '2026-11-15 07:59:46.584858+00', 'outbox', 24),
	('0002_events', 2, '28566fa62fbdf32fb13c0c6956feef99aa215d761f6c952ded9af09fee993a89', 'created', '2026-11-15 07:59:46.74716+00', 'outbox', 99),
	('0003_guard', 3, 'de5aa717b08914b9217d9052f9320b8d76f420c8e137da2959650a412f6a4a42', 'created', '2026-11-15 07:59:46.756138+00', 'outbox', 6),
	('0004_adopted_rows', 4, 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', 'created', '2026-11-15 07:59:46.854436+00', 'outbox', 8),
	('0005_event_indexes', 5, '1687cccc6f46fdafb5c479ad80f9de80492286e1da774b05f53871746e2d13a5', 'created', '2026-11-15 07:59:46.982008+00', 'outbox', 102),
	('0006_enqueue', 6, 'db1b85ff464f21c09ab2d523200cc4342530d607f3cb467fd102d4ed90285828', 'created', '2026-11-15 07:59:46.992735+00', 'outbox', 1),
	('0007_workers', 7, '3c588fa903c1d2e7745b462833d69b343b0e396474cb83b24b2ff9814678e103', 'created', '2026-11-15 07:59:47.171832+00', 'outbox', 150),
	('0008_operations', 8, '6fa1ff542d9e56a8d396d6566f1dd3f0af2e52a3f22c7dd2ed7d4a0eff7553f1', 'created', '2026-11-15 07:59:47.791844+00', 'outbox', 461),
	('0009_verify_and_rebuild', 9, '485bb441c36d4f8dd82239f6d109751afb48b7305147b40b714025734b77d702', 'created', '2026-11-15 07:59:47.812492+00', 'outbox', 13),
	('0020_audit_chain', 20, '5bb270da1a098f30cbb56637f2a1ba1f29876b2035d28a50b97e2d2c2aec51ed', 'created', '2026-11-15 07:59:47.948733+00', 'outbox', 93),
	('0021_discards', 21, 'c7f57838377462f1569681fd09ee6f219caa7bfd27a6a0a0e588963452bca200', 'created', '2026-11-15 07:59:47.970014+00', 'outbox', 18),
	('0022_failure_indexes', 22, 'b2bd9866216dbd06aa50f06aa9319419271a0169a9117be48a4a81ae5f058364', 'created', '2026-11-15 07:59:47.984756+00', 'outbox', 8);
INSERT INTO public.search_outbox_rollup VALUES
	('2026-11-15 08:00:00+00', 'minute', 'article', 'done', '', 18),
	('2026-11-15 08:00:00+00', 'minute', 'article', 'missing', '', 2),
	('2026-11-15 08:00:00+00', 'minute', 'article', 'superseded', '', 2),
	('2026-11-15 08:00:00+00', 'minute', 'odd', 'failed', 'deterministic_exception', 3);
INSERT INTO public.search_outbox_workers VALUES
	('old-1', '44881c15-784d-49a7-9aa4-8506d397187a', 'old-host', 1, '0.1.0', '2026-11-15 08:00:34.67432+00', '2026-11-15 08:00:41.049086+00', 20, '{}', 'stopped', NULL);
SELECT pg_catalog.setval('public.search_outbox_audit_id_seq', 2, true);
SELECT pg_catalog.setval('public.search_outbox_rebuilds_id_seq', 1, false);
SELECT pg_catalog.setval('public.search_outbox_seq', 45, true);
SELECT pg_catalog.setval('public.search_outbox_verifications_id_seq', 1, false);
SELECT pg_catalog.setval('public.search_outbox_version', 45, true);
ALTER TABLE ONLY public.search_outbox_audit_head
    ADD CONSTRAINT search_outbox_audit_head_pkey PRIMARY KEY (only_one);
ALTER TABLE ONLY public.search_outbox_audit
    ADD CONSTRAINT search_outbox_audit_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.search_outbox_audit_pruned
    ADD CONSTRAINT search_outbox_audit_pruned_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.search_outbox_controls
    ADD CONSTRAINT search_outbox_controls_pkey PRIMARY KEY (scope);
ALTER TABLE ONLY public.search_outbox_discards
    ADD CONSTRAINT search_outbox_discards_pkey PRIMARY KEY (event_id);
ALTER TABLE ONLY public.search_outbox_events
    ADD CONSTRAINT search_outbox_events_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.search_outbox_leases
    ADD CONSTRAINT search_outbox_leases_pkey PRIMARY KEY (token);
ALTER TABLE ONLY public.search_outbox_migrations
    ADD CONSTRAINT search_outbox_migrations_number_key UNIQUE (number);
ALTER TABLE ONLY public.search_outbox_migrations
    ADD CONSTRAINT search_outbox_migrations_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.search_outbox_quotas
    ADD CONSTRAINT search_outbox_quotas_pkey PRIMARY KEY (entity_type);
ALTER TABLE ONLY public.search_outbox_rebuilds
    ADD CONSTRAINT search_outbox_rebuilds_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.search_outbox_replay_items
    ADD CONSTRAINT search_outbox_replay_items_pkey PRIMARY KEY (replay_id, event_id);
ALTER TABLE ONLY public.search_outbox_replays
    ADD CONSTRAINT search_outbox_replays_client_id_key UNIQUE (client_id);
ALTER TABLE ONLY public.search_outbox_replays
    ADD CONSTRAINT search_outbox_replays_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.search_outbox_rollup
    ADD CONSTRAINT search_outbox_rollup_pkey PRIMARY KEY (bucket, span, entity_type, outcome, reason);
ALTER TABLE ONLY public.search_outbox_verifications
    ADD CONSTRAINT search_outbox_verifications_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.search_outbox_webhook_deliveries
    ADD CONSTRAINT search_outbox_webhook_deliveries_dedupe_key_key UNIQUE (dedupe_key);
ALTER TABLE ONLY public.search_outbox_webhook_deliveries
    ADD CONSTRAINT search_outbox_webhook_deliveries_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.search_outbox_workers
    ADD CONSTRAINT search_outbox_workers_pkey PRIMARY KEY (worker_id);
CREATE INDEX search_outbox_attempts_event_idx ON public.search_outbox_attempts USING btree (event_id);
CREATE INDEX search_outbox_audit_action_idx ON public.search_outbox_audit USING btree (action, id);
CREATE INDEX search_outbox_audit_actor_idx ON public.search_outbox_audit USING btree (actor, id);
CREATE INDEX search_outbox_audit_at_idx ON public.search_outbox_audit USING btree (at);
CREATE INDEX search_outbox_audit_batch_idx ON public.search_outbox_audit USING btree (batch_id) WHERE (batch_id IS NOT NULL);
CREATE INDEX search_outbox_audit_entity_idx ON public.search_outbox_audit USING btree (entity_type, entity_id) WHERE (entity_id IS NOT NULL);
CREATE INDEX search_outbox_audit_event_idx ON public.search_outbox_audit USING btree (event_id) WHERE (event_id IS NOT NULL);
CREATE INDEX search_outbox_audit_trace_idx ON public.search_outbox_audit USING btree (trace_id) WHERE (trace_id IS NOT NULL);
CREATE INDEX search_outbox_discards_entity_idx ON public.search_outbox_discards USING btree (entity_type, entity_id);
CREATE INDEX search_outbox_events_delete_idx ON public.search_outbox_events USING btree (entity_type, entity_id, event_version) WHERE (op = 'delete'::text);
CREATE INDEX search_outbox_events_failed_entity_idx ON public.search_outbox_events USING btree (entity_type, entity_id, event_version) WHERE (failed_at IS NOT NULL);
CREATE INDEX search_outbox_events_failed_idx ON public.search_outbox_events USING btree (failed_at) WHERE (failed_at IS NOT NULL);
CREATE INDEX search_outbox_events_failure_idx ON public.search_outbox_events USING btree (error_fingerprint, failed_at) INCLUDE (entity_type, error_reason, error_code, dead_reason, replay_count) WHERE (failed_at IS NOT NULL);
CREATE INDEX search_outbox_events_fresh_idx ON public.search_outbox_events USING btree (seq) WHERE ((processed_at IS NULL) AND (failed_at IS NULL) AND (next_retry_at IS NULL) AND (abandoned_count = 0));
CREATE UNIQUE INDEX search_outbox_events_idempotency_idx ON public.search_outbox_events USING btree (idempotency_key) WHERE (idempotency_key IS NOT NULL);
CREATE INDEX search_outbox_events_processed_idx ON public.search_outbox_events USING btree (processed_at) WHERE (processed_at IS NOT NULL);
CREATE INDEX search_outbox_events_retry_idx ON public.search_outbox_events USING btree (next_retry_at) WHERE ((processed_at IS NULL) AND (failed_at IS NULL) AND (next_retry_at IS NOT NULL) AND (abandoned_count = 0));
CREATE INDEX search_outbox_events_suspect_idx ON public.search_outbox_events USING btree (abandoned_count, seq) WHERE ((processed_at IS NULL) AND (failed_at IS NULL) AND (abandoned_count > 0));
CREATE UNIQUE INDEX search_outbox_rebuilds_running_idx ON public.search_outbox_rebuilds USING btree ((true)) WHERE (status = 'running'::text);
CREATE INDEX search_outbox_replay_items_event_idx ON public.search_outbox_replay_items USING btree (event_id);
CREATE INDEX search_outbox_replay_items_open_idx ON public.search_outbox_replay_items USING btree (replay_id, ordinal) WHERE ((state = 'replayed'::text) AND (outcome IS NULL));
CREATE INDEX search_outbox_replay_items_pinned_idx ON public.search_outbox_replay_items USING btree (replay_id, ordinal) WHERE (state = 'pinned'::text);
CREATE INDEX search_outbox_replays_created_idx ON public.search_outbox_replays USING btree (created_at);
CREATE INDEX search_outbox_replays_live_idx ON public.search_outbox_replays USING btree (created_at) WHERE (status = ANY (ARRAY['queued'::text, 'dispatching'::text, 'following'::text]));
CREATE INDEX search_outbox_verifications_started_idx ON public.search_outbox_verifications USING btree (started_at);
CREATE INDEX search_outbox_webhook_deliveries_created_idx ON public.search_outbox_webhook_deliveries USING btree (created_at);
CREATE INDEX search_outbox_webhook_deliveries_due_idx ON public.search_outbox_webhook_deliveries USING btree (next_attempt_at) WHERE (status = 'pending'::text);
CREATE TRIGGER search_outbox_audit_begin BEFORE INSERT ON public.search_outbox_audit FOR EACH STATEMENT EXECUTE FUNCTION public.search_outbox_audit_begin();
ALTER TABLE public.search_outbox_audit ENABLE ALWAYS TRIGGER search_outbox_audit_begin;
CREATE TRIGGER search_outbox_audit_chain BEFORE INSERT ON public.search_outbox_audit FOR EACH ROW EXECUTE FUNCTION public.search_outbox_audit_chain();
ALTER TABLE public.search_outbox_audit ENABLE ALWAYS TRIGGER search_outbox_audit_chain;
CREATE TRIGGER search_outbox_audit_end AFTER INSERT ON public.search_outbox_audit FOR EACH STATEMENT EXECUTE FUNCTION public.search_outbox_audit_end();
ALTER TABLE public.search_outbox_audit ENABLE ALWAYS TRIGGER search_outbox_audit_end;
CREATE TRIGGER search_outbox_audit_refuse BEFORE DELETE OR UPDATE ON public.search_outbox_audit FOR EACH ROW EXECUTE FUNCTION public.search_outbox_audit_refuse();
ALTER TABLE public.search_outbox_audit ENABLE ALWAYS TRIGGER search_outbox_audit_refuse;
CREATE TRIGGER search_outbox_audit_refuse_truncate BEFORE TRUNCATE ON public.search_outbox_audit FOR EACH STATEMENT EXECUTE FUNCTION public.search_outbox_audit_refuse();
ALTER TABLE public.search_outbox_audit ENABLE ALWAYS TRIGGER search_outbox_audit_refuse_truncate;
CREATE TRIGGER search_outbox_discards BEFORE UPDATE ON public.search_outbox_events FOR EACH ROW WHEN (((new.status = 'discarded'::text) <> (old.status = 'discarded'::text))) EXECUTE FUNCTION public.search_outbox_discards();
CREATE TRIGGER search_outbox_discards_gone BEFORE DELETE ON public.search_outbox_events FOR EACH ROW WHEN ((old.status = 'discarded'::text)) EXECUTE FUNCTION public.search_outbox_discards();
CREATE TRIGGER search_outbox_guard BEFORE INSERT OR UPDATE ON public.search_outbox_events FOR EACH ROW WHEN ((((new.processed_at IS NOT NULL) <> (new.status = ANY (ARRAY['done'::text, 'discarded'::text]))) OR ((new.failed_at IS NOT NULL) <> (new.status = 'failed'::text)))) EXECUTE FUNCTION public.search_outbox_guard();
ALTER TABLE ONLY public.search_outbox_replay_items
    ADD CONSTRAINT search_outbox_replay_items_replay_id_fkey FOREIGN KEY (replay_id) REFERENCES public.search_outbox_replays(id) ON DELETE CASCADE;
