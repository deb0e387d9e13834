"""What every report has: its kind says what it is about, and its subject names that."""

from __future__ import annotations

from headgate.protocol.records import Record


class Report(Record, frozen=True, kw_only=True):
    """A record under `stats`; the kind of each is what it is about and the word report."""

    @classmethod
    def about(cls) -> str:
        """What it is about, as its subject names it."""
        return cls.kind_name.removesuffix("-report")
