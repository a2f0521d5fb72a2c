"""Random schemas, a view over each, and writers who change the rows: what `outbox attach --from-view` must follow."""
