-- PostgreSQL takes one operation per trigger where there are transition tables.
create or replace trigger {insert}
    after insert on {table}
    referencing new table as search_outbox_new
    for each statement execute function {function}({about});

create or replace trigger {update}
    after update on {table}
    referencing old table as search_outbox_old new table as search_outbox_new
    for each statement execute function {function}({about});

create or replace trigger {delete}
    after delete on {table}
    referencing old table as search_outbox_old
    for each statement execute function {function}({about});

-- ALWAYS: changes under session_replication_role = replica are changes too. Logical replication fires row triggers only.
alter table {table} enable always trigger {insert};
alter table {table} enable always trigger {update};
alter table {table} enable always trigger {delete};
