"""The console's pages, each with its API and its endpoints: they ask the services and decide nothing. No SQL."""
