-- TRUNCATE fires no row trigger: every document would stay. One for the table and each of its partitions.
create or replace trigger search_outbox_no_truncate
    before truncate on {table}
    for each statement execute function {refuse}();

alter table {table} enable always trigger search_outbox_no_truncate;
