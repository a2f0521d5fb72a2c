"""The project: settings and routes."""
