"""Elasticsearch: requests, replies and what is known about the target indexes. It decides nothing about events."""
