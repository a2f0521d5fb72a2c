"""A service with articles and comments, found by a search in Elasticsearch."""
