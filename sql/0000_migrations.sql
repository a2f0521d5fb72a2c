-- Why:  remembers which migrations this database has, with their checksums, so that two releases never guess.
--       One row per numbered migration; optional parts (by_type, by_entity, notify) have a row without a number.
-- Undo:
--   drop table search_outbox_migrations;
-- Roles (granted by a later migration): the owner writes; projector, operator and reader SELECT.

create table if not exists search_outbox_migrations (
    name         text primary key,
    number       int unique,
    checksum     text not null,
    mode         text not null default 'created' check (mode in ('created', 'adopted')),
    applied_at   timestamptz not null default clock_timestamp(),
    applied_by   text not null default current_user,
    duration_ms  int not null default 0
);
