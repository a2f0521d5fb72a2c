"""Who may: tokens and roles, the login cookie, and the gate that every request passes."""
