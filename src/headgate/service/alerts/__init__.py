"""Alerts: what is wrong for longer than it may be, who is told, and when it is over."""
