"""Pure decisions: what becomes of an event. No I/O, no clock and no randomness of its own."""
