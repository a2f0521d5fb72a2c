create or replace trigger {row}
    after insert or update or delete on {table}
    for each row execute function {function}({about});

-- ALWAYS: rows that arrive by logical replication, or under session_replication_role = replica, are changes too.
alter table {table} enable always trigger {row};
