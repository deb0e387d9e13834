"""The planted faults of gateways, as a table; see `headgate_studies.testing.world.faults`."""

from __future__ import annotations

from typing import Final

from headgate_studies.testing.world.mutant import Mutant

GATEWAY_MUTANTS: Final = (
    Mutant(
        "memory answers for what it has let go",
        "gateway.memory",
        "if floor is None or after < floor:",
        "if floor is None:",
    ),
    Mutant(
        "memory forgets that it has let a message go",
        "gateway.memory",
        "                self._floors[oldest.subject] = oldest.sequence\n",
        "                pass\n",
    ),
    Mutant(
        "an inbox that is watched anew counts as known from its start",
        "gateway.memory",
        "            self._floors[subject] = self.seen\n",
        "            self._floors[subject] = 0\n",
    ),
    Mutant(
        "a gateway that begins passes over a message",
        "gateway.follower",
        "memory.begin(0 if last is None else last.sequence)",
        "memory.begin(1 if last is None else last.sequence + 1)",
    ),
    Mutant(
        "an answer of the log that has messages teaches that there are none",
        "gateway.answers",
        "            if not found:\n                self._memory.learn",
        "            if True:\n                self._memory.learn",
    ),
)
