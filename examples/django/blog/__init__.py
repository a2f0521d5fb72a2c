"""Articles and comments, found by a search in Elasticsearch."""
