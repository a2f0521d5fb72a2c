"""Access: accounts (tokens, roles), sessions, limits per client, and the gate that every request passes."""
