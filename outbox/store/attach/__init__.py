"""`outbox attach`: `attach` installs triggers, `installed` reads those that are there, `triggers` is their text;
`tables`, `via` and `checks` say what can be attached.
"""
