"""Compatibility runs: the tests that are there, on other servers, another Python, behind a pooler; and the upgrade."""
