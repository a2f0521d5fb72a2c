-- Every step of every row of the outbox, written by triggers that only the database of a lab or of the nemesis has. `who`
-- names the process that made the step: it stands in that process's DATABASE_URL (labs/worker.py), and `app` names its
-- connection. Written in the step's own transaction and logged: a crash of PostgreSQL loses a step with its log, or neither.
create table recorded_steps (
    n            bigint generated always as identity primary key,
    at           timestamptz not null default clock_timestamp(),
    event_id     uuid not null,
    who          text default current_setting('recorded.who', true),
    app          text default current_setting('application_name'),
    old_status   text not null,
    new_status   text,  -- null: the row was removed
    old_owner    text,
    new_owner    text,
    old_token    uuid,
    new_token    uuid,
    lease_left   float8,
    old_attempts int not null,
    attempts     int,
    abandoned    int,
    replays      int,
    retries      boolean,
    reason       text,
    dead_reason  text
);

create function record_step() returns trigger language plpgsql as $fn$
begin
    insert into recorded_steps (event_id, old_status, new_status, old_owner, new_owner, old_token, new_token, lease_left,
                                old_attempts, attempts, abandoned, replays, retries, reason, dead_reason)
    values (old.id, old.status, new.status, old.owner, new.owner, old.lease_token, new.lease_token,
            extract(epoch from old.lease_until - clock_timestamp()), old.attempts, new.attempts, new.abandoned_count,
            new.replay_count, new.next_retry_at is not null, new.error_reason, new.dead_reason);
    return null;
end
$fn$;

create trigger record_step after update on search_outbox_events for each row
    when (old.status is distinct from new.status or old.lease_token is distinct from new.lease_token)
    execute function record_step();
create trigger record_removal after delete on search_outbox_events for each row execute function record_step();
