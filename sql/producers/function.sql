-- The trigger function of one attachment. Its search_path is the one that `outbox attach` had, so the writer's does not
-- matter; pg_temp comes last, so that no temporary table stands in for a table that is meant. Text in the body is quoted
-- for standard_conforming_strings.
create or replace function {function}() returns trigger
language plpgsql
set search_path = {path}
set standard_conforming_strings = on
as {body}
