"""The index against PostgreSQL: compare it, correct it, fill it, build it anew. Each command has its file."""
