"""The planted faults of changing over to a standby parent (see `headgate_studies.testing.world.mutants`)."""

from __future__ import annotations

from typing import Final

from headgate_studies.testing.world.mutant import Mutant

STANDBY_MUTANTS: Final = (
    Mutant(
        "a dead parent is not noticed",
        "relay.last_heard",
        "        return heard_s is not None and now - heard_s > SILENT_S\n",
        "        return heard_s is not None and now - heard_s > 1000 * SILENT_S\n",
    ),
    Mutant(
        "half of a commit of which rows were given up is taken from elsewhere",
        "wire.block",
        "        return bool(len(self.seqs)) and place <= self.commits[-1].after\n",
        "        return True\n",
    ),
    Mutant(
        "a standby that was cut off is not asked again",
        "relay.silent_sites",
        "                self._ask(standby, stream, serve=True)\n                if not",
        "                if not state.vital.silent(standby, now):\n"
        "                    self._ask(standby, stream, serve=True)\n                if not",
    ),
    Mutant(
        "what a standby has and did not send is not looked for",
        "relay.silent_sites",
        "if serve and self._state.standbys.get(stream) == site:",
        "if serve and not stream:",
    ),
    Mutant(
        "a standby sends what it has left out as if it joined",
        "relay.output",
        "if parts or last.upto != each.block.after or",
        "if parts or",
    ),
)
