"""When other sites were last heard of. No clock of its own: times come in as arguments."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

BEAT_S: Final = 1.0
"""A site that has been quiet for so long is asked for a sign of life, as often."""
SILENT_S: Final = 2.5
"""A site that has given none for so long is taken for dead."""
AWAITED_S: Final = 30.0


class VitalSigns:
    """Signs of life by site.

    >>> signs = VitalSigns(); signs.begin("paris", 10.0); signs.silent("paris", 12.4), signs.silent("paris", 12.6)
    (False, True)
    >>> signs.heard("paris", 13.0); signs.silent("paris", 13.1), signs.silent("oslo", 99.0)
    (False, False)
    """

    def __init__(self) -> None:
        self._heard_s: dict[str, float] = {}
        self._awaited: dict[str, tuple[str, float]] = {}

    def begin(self, site: str, now: float) -> None:
        """From now on something is to be heard of a site, unless it was before."""
        self._heard_s.setdefault(site, now)

    def heard(self, site: str, now: float) -> None:
        """A site has given a sign of life."""
        self._heard_s[site] = now

    def stood_still(self, seconds: float) -> None:
        """This process has not run for some time, in which it could not hear of anybody: that time does not count."""
        if seconds > BEAT_S:
            self._heard_s = {site: heard_s + seconds for site, heard_s in self._heard_s.items()}

    def only(self, sites: Collection[str]) -> None:
        """Nobody listens for others any more, so their silence means nothing."""
        self._heard_s = {site: heard_s for site, heard_s in self._heard_s.items() if site in sites}

    def quiet(self, site: str, now: float) -> bool:
        """Whether it is time to ask a site for a sign of life."""
        return now - self._heard_s.get(site, -BEAT_S) >= 0.99 * BEAT_S

    def silent(self, site: str, now: float) -> bool:
        """Whether a site is taken for dead; one that nobody listened for is not."""
        heard_s = self._heard_s.get(site)
        return heard_s is not None and now - heard_s > SILENT_S

    def wait_for(self, site: str, stream: str, now: float) -> None:
        """Rows of an earlier plan are still to come from a site: it is listened for, though it is no parent now."""
        self._awaited[site] = (stream, now)
        self.begin(site, now)

    def awaited(self, now: float) -> dict[str, str]:
        """The sites that rows were awaited of lately, each with a stream; of others nothing is known any more."""
        gone = [site for site, (_, since_s) in self._awaited.items() if now - since_s > AWAITED_S]
        for site in gone:
            del self._awaited[site]
        return {site: stream for site, (stream, _) in self._awaited.items()}
