"""`outbox doctor`: `doctor` asks for everything; the other files judge what was seen of one thing each."""
