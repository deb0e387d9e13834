"""Faults to plant in how root logs are kept small."""

from __future__ import annotations

from typing import Final

from headgate_studies.testing.world.mutant import Mutant

ROOT_MUTANTS: Final = (
    Mutant(
        "the last commits stay in a root log that they fill",
        "relay.root_log",
        "done[-KEPT_COMMITS if len(done) > KEPT_COMMITS else -1].place",
        "done[-min(KEPT_COMMITS, len(done))].place",
    ),
    Mutant(
        "manifests go as soon as the ledger has them",
        "relay.root_log",
        "return min(sums.place, await place_behind(self._port, stream, max(sums.mark, passed)))",
        "return sums.place",
    ),
)
