-- Run by the tables' owner after `outbox migrate --log`. The password is known to everybody who reads this repository.
do $do$
begin
    if to_regrole('outbox_connector') is null then
        create role outbox_connector;
    end if;
end
$do$;
alter role outbox_connector login replication password 'wordloom';
grant usage on schema public to outbox_connector;
grant select on search_outbox_log to outbox_connector;
-- A projector that reads from Kafka stores what failed or is tried again.
grant insert on search_outbox_events to search_outbox_projector;
