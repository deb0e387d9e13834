"""The demo: a shipped deployment, readers for all of its subscriptions, and a summary against simpler networks."""
