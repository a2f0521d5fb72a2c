-- What every row of the outbox went through, written by a trigger in the lab's own database. pid tells which backend,
-- and so which daemon, made the step. Logged, not unlogged: a lab kills PostgreSQL, and the history must survive.
create table lab_transitions (
    n            bigint generated always as identity primary key,
    at           timestamptz not null default clock_timestamp(),
    event_id     uuid not null,
    pid          int not null default pg_backend_pid(),
    old_status   text,
    new_status   text not null,
    old_owner    text,
    new_owner    text,
    old_token    uuid,
    new_token    uuid,
    lease_left   float8,
    old_attempts int not null,
    attempts     int not null,
    retries      boolean not null,
    reason       text,
    replay_count int not null
);

create function lab_note_transition() returns trigger language plpgsql as $fn$
begin
    insert into lab_transitions (event_id, old_status, new_status, old_owner, new_owner, old_token, new_token,
                                 lease_left, old_attempts, attempts, retries, reason,
                                 replay_count)
    values (new.id, old.status, new.status, old.owner, new.owner, old.lease_token, new.lease_token,
            extract(epoch from old.lease_until - clock_timestamp()), old.attempts, new.attempts,
            new.next_retry_at is not null, new.error_reason, new.replay_count);
    return null;
end
$fn$;

create trigger lab_note_transition after update on search_outbox_events for each row
    when (old.status is distinct from new.status or old.lease_token is distinct from new.lease_token)
    execute function lab_note_transition();
