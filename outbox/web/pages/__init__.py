"""The console's pages: each asks the services and hands plain values to its template. No SQL, no rules."""
