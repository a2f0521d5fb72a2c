"""The REST API under /api/v1: read a request, call one service, answer. No SQL, no rules of the queue."""
