-- Why:  a comparison that was killed must not look as if it were under way for ever: each step it takes is timed.
-- Undo:
--   alter table search_outbox_verifications drop column if exists updated_at;
--   delete from search_outbox_migrations where name = '0041_verification_beats';

alter table search_outbox_verifications add column updated_at timestamptz not null default clock_timestamp();
