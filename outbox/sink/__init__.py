"""Elasticsearch: what is sent, what comes back, and what is known of the targets. Decides nothing about events."""
