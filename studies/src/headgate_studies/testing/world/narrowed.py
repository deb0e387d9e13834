"""Links whose bandwidth changes while rows are under way: the changes, a family of scenarios, and its faults."""

from __future__ import annotations

from math import inf
from random import Random
from typing import Final

from headgate.virtual.fabric import SERVER
from headgate.virtual.network import SimulatedLink
from headgate_studies.testing.world.codec import size_of
from headgate_studies.testing.world.deployed import World
from headgate_studies.testing.world.mutant import Mutant
from headgate_studies.testing.world.scenario import Action, Scenario
from headgate_studies.testing.world.small import commits, small_scenario, subscription

_RATES: Final = (1_500.0, 3_000.0, 20_000.0)
_KNOWN_S: Final = 10.0
"""After so long a sender has heard what a link carries, and what had been sent too much has gone."""
_LATELY_S: Final = 4.0
_ALONE: Final = 0.5


class Bandwidths(World):
    """Narrows and widens links; each method with one `Action` is a kind of fault of the scenario."""

    def _narrow(self, action: Action) -> None:
        """What comes to a relay, or also what it sends, is carried slowly for a while; then it is as before."""
        out, into = self.fabric.network.between(action.place, SERVER)
        rate = self.random.choice(_RATES)
        for link in self.random.choice(((into,), (into,), (out, into))):
            self._carry(link, rate)
            self._later(action.number, self._widen, link, rate)

    def _squeeze_link(self, action: Action) -> None:
        """The link into a site carries less than is sent: soon rows wait in its sender's queue, not on the link."""
        _, into = self.fabric.network.between(action.place, SERVER)
        self._carry(into, _RATES[1])
        self._later(action.number, self._widen, into, _RATES[1])
        for each in range(int(action.number - _KNOWN_S) + 1):
            self._later(_KNOWN_S + each - 0.05, self._sends_little, action.place)

    def _carry(self, link: SimulatedLink, rate: float) -> None:
        self.fabric.network.set_rate(link, rate, self.fabric.queue.now)

    def _widen(self, link: SimulatedLink, rate: float) -> None:
        if link.rate_bytes_per_s == rate:  # it was not changed again meanwhile
            self._carry(link, inf)

    def _sends_little(self, site: str) -> None:
        """What was lately put on the link into a site is no more than it carries, but for one message."""
        if self._quiet:
            return
        link = self.fabric.network.link(SERVER, site)
        now, log = self.fabric.wall_s + self.fabric.queue.now, self.logs.site(site)
        found = self.fabric.server.read(log, self.logs.links_into(site), 0, limit=1 << 20, max_bytes=1 << 40)
        lately = [size_of(stored.data) for stored in found if now - stored.time_s < _LATELY_S]
        most = _LATELY_S * link.rate_bytes_per_s + max(lately, default=0)
        if sum(lately) > most:
            self._checks.fail(
                f"{sum(lately)} bytes were sent in {_LATELY_S:g} s over a link into {site} that carries "
                f"{link.rate_bytes_per_s:g} a second for {_KNOWN_S:g} s: its sender does not mind"
            )


def changing_bandwidth(seed: int, random: Random) -> Scenario:
    """Links become narrow and wide again under a load that they cannot carry; in half of the runs more fails."""
    actions = commits(random, random.choice((0.1, 0.2)), random.choice((24, 60)), 22.0)
    begin = random.uniform(1.5, 3.0)
    if random.random() < _ALONE:
        actions.append(Action(begin, "squeeze_link", random.choice(("s1", "s2")), number=random.uniform(14.0, 18.0)))
    else:
        kinds = (
            "narrow",
            "narrow",
            "narrow",
            "bandwidth",
            "kill",
            "cut",
            "lossy",
            "pause",
            "replan",
            "flip_last",
            "move",
        )
        actions += [Action(begin, "narrow", random.choice(("s1", "s2")), number=random.uniform(1.0, 9.0))]
        actions += [
            Action(
                random.uniform(1.0, 16.0), random.choice(kinds), random.choice(("s0", "s1", "s2")), "s1",
                random.uniform(1.0, 6.0),
            )
            for _ in range(random.choice((3, 6, 10)))
        ]  # fmt: skip
    mine = [subscription("u0", "s2"), subscription("u1", random.choice(("s1", "s2")))]
    return small_scenario(
        seed,
        mine,
        actions,
        length_s=24.0,
        max_rows=random.choice((100, 400, 100_000)),
        max_block=random.choice((1_000, 1 << 20)),
    )


BANDWIDTH_FAMILIES: Final = (changing_bandwidth,)
BANDWIDTH_MUTANTS: Final = (
    Mutant(
        "nobody tells a sender what its link delivers",
        "relay.pacing",
        "        return now < self._until_s.get(parent, 0.0) or self._follows(parent)\n",
        "        return False\n",
    ),
    Mutant(
        "what was measured of a link is no limit",
        "relay.budget",
        "        measured = None if bound is None or bound.rate_bytes_per_s == math.inf else bound.rate_bytes_per_s\n",
        "        measured = None\n",
    ),
)
