"""The tables, and the view."""
