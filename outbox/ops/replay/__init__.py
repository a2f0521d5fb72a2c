"""Replays of failed events: `desk` creates, dispatches and follows them; `plan` says beforehand what one would do."""
