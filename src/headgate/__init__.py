"""Headgate: planned, accounted delivery of live data streams to many subscribers over limited links."""

__version__ = "0.1.0"
