-- Why:  a rebuild says which indexes daemons mirror to (`mirrors`), with a number that grows at every change of that
--       list (`revision`): a worker writes the number it obeys into rebuild_seen, so that the next step can wait for
--       all of them. A daemon that meets a second index which is gone or blocked sets `broken` and goes on without it.
--       Verifications of a rebuild's new index are kept apart from those of what people search.
-- Undo:
--   delete from search_outbox_rebuilds where status = 'broken';
--   alter table search_outbox_rebuilds drop constraint if exists search_outbox_rebuilds_status_check;
--   alter table search_outbox_rebuilds add constraint search_outbox_rebuilds_status_check
--       check (status in ('running', 'swapped', 'finished', 'cancelled', 'rolled_back', 'failed'));
--   alter table search_outbox_rebuilds drop column if exists mirrors, drop column if exists revision,
--       drop column if exists broken, drop column if exists options, drop column if exists verification_id;
--   alter table search_outbox_verifications drop column if exists rebuild_id, drop column if exists unreadable,
--       drop column if exists in_flux, drop column if exists estimate;
--   drop sequence if exists search_outbox_rebuild_revision;
--   delete from search_outbox_migrations where name = '0040_rebuild_steps';
-- Roles (granted by a later migration): projector SELECT and UPDATE on rebuilds, SELECT on verifications; operator the
--       same and INSERT, and USAGE on the sequence; reader SELECT.

create sequence if not exists search_outbox_rebuild_revision as bigint cache 1;

alter table search_outbox_rebuilds
    add column mirrors          text[] not null default '{}',
    add column revision         bigint not null default 0,
    add column broken           text,
    add column options          json,
    add column verification_id  bigint;

alter table search_outbox_rebuilds drop constraint search_outbox_rebuilds_status_check;
alter table search_outbox_rebuilds add constraint search_outbox_rebuilds_status_check
    check (status in ('running', 'swapped', 'finished', 'cancelled', 'rolled_back', 'failed', 'broken'));

alter table search_outbox_verifications
    add column rebuild_id  bigint,
    add column unreadable  bigint not null default 0,
    add column in_flux     bigint not null default 0,
    add column estimate    bigint;
