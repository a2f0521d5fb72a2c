-- Run by the tables' owner after every migration: the roles of docs/security.md log in. The password is known to everybody
-- who reads this repository.
alter role search_outbox_producer login password 'wordloom';
alter role search_outbox_projector login password 'wordloom';
alter role search_outbox_operator login password 'wordloom';
alter role search_outbox_reader login password 'wordloom';
