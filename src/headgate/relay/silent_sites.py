"""Sites above this one that have fallen silent, and who serves this site in their place.

A message of a parent is a sign of life; where none comes, the parent is asked for one every second, by the service that
answers questions about ranges. A parent that gave none for `SILENT_S` is taken for dead. Then this site asks a standby
of the plan to serve it (`headgate.relay.stand_in`), says so again every second, and catches up with what the standby
has. Nobody else has to agree: which rows this site has had is decided by coverage alone, so that two parents which both
send, as one was only slow, cost bytes and nothing else. The standby stops when it is not asked any more.

A subscription with `paths: 2` has a site above its parent asked in the same way all the time, whether the parent is
silent or not. Whatever comes first of a range is taken, and the other copy covers nothing new.
"""

from __future__ import annotations

from typing import Final

from headgate.model.second_path import second_paths
from headgate.protocol.port import FabricError
from headgate.protocol.records import RangeRequest
from headgate.relay.gaps import Gaps
from headgate.relay.last_heard import BEAT_S
from headgate.relay.state import SiteState

_ANSWER_S: Final = 2.0


class ParentWatch:
    """Looks after the parents of one relay."""

    def __init__(self, state: SiteState, gaps: Gaps) -> None:
        self._state = state
        self._gaps = gaps
        self._asking: set[tuple[str, str]] = set()
        self._doubled: tuple[int, dict[str, str]] = (0, {})

    async def run(self) -> None:
        """Ask for signs of life, and change parents where there are none."""
        state, port = self._state, self._state.port
        while True:
            slept_s = port.now
            await port.sleep(BEAT_S)
            state.vital.stood_still(port.now - slept_s - BEAT_S)
            above, standbys, seconds = self._above(), self._standbys(), self._seconds()
            state.vital.only({*above, *(each for chosen in standbys.values() for each in chosen), *seconds.values()})
            for site, stream in above.items():
                if state.vital.quiet(site, port.now):
                    self._ask(site, stream, serve=False)
            self._choose(standbys)
            self._keep_second(seconds)

    def _above(self) -> dict[str, str]:
        """The parents of the plan in force and those that rows are still awaited of, each with one of its streams."""
        state, plan = self._state, self._state.newest.plan if self._state.newest else None
        found = state.vital.awaited(state.port.now)
        for stream, tree in plan.trees.items() if plan else ():
            if state.site in tree.parents:
                found.setdefault(tree.parents[state.site], stream)
        found.pop(state.site, None)
        return found

    def _standbys(self) -> dict[str, tuple[str, ...]]:
        """The standbys of each stream whose parent has fallen silent."""
        state, plan = self._state, self._state.newest.plan if self._state.newest else None
        return {
            stream: tree.standbys_of(state.site)
            for stream, tree in (plan.trees.items() if plan else ())
            if state.site in tree.parents and state.vital.silent(tree.parents[state.site], state.port.now)
        }

    def _choose(self, standbys: dict[str, tuple[str, ...]]) -> None:
        """Have each stream of a silent parent served by its first standby that is not silent too.

        Silent ones are asked all the same: a better one may come back, and all of them may have been cut off.
        """
        state, now = self._state, self._state.port.now
        in_use: dict[str, str] = {}
        for stream, chosen in standbys.items():
            for standby in chosen:
                self._ask(standby, stream, serve=True)
                if not state.vital.silent(standby, now):
                    in_use[stream] = standby
                    break
        state.standbys = in_use

    def _seconds(self) -> dict[str, str]:
        """By stream, who serves this site besides its parent, as its subscriptions ask for two paths."""
        newest, site = self._state.newest, self._state.site
        if newest is None or newest.plan is None:
            return {}
        if self._doubled[0] != newest.revision:
            found = second_paths(newest.deployment, newest.plan).values()
            self._doubled = (newest.revision, {each.stream: each.parent for each in found if each.site == site})
        return self._doubled[1]

    def _keep_second(self, seconds: dict[str, str]) -> None:
        """Have the second path of each stream served all the time; those that answer are in use."""
        state, now = self._state, self._state.port.now
        for stream, above in seconds.items():
            self._ask(above, stream, serve=True)
        state.seconds = {stream: above for stream, above in seconds.items() if not state.vital.silent(above, now)}

    def _ask(self, site: str, stream: str, *, serve: bool) -> None:
        if (site, stream) not in self._asking:
            self._asking.add((site, stream))
            self._state.vital.begin(site, self._state.port.now)
            self._state.port.machine.spawn(self._beat(site, stream, serve), f"beat of {site}")

    async def _beat(self, site: str, stream: str, serve: bool) -> None:
        """Ask a site for a sign of life, and a standby also to serve this site; it says how far it has come."""
        port = self._state.port
        request = RangeRequest(stream=stream, after=0, upto=0, child=self._state.site, beat=True, serve=serve)
        try:
            answer = await port.request(port.logs.repair(site), request.encode(), _ANSWER_S)
            reached = int(answer)
        except (FabricError, ValueError):
            return  # that is what silence is
        finally:
            self._asking.discard((site, stream))
        self._state.vital.heard(site, port.now)
        if serve and self._state.standbys.get(stream) == site:
            self._gaps.expect(stream, site, reached)
