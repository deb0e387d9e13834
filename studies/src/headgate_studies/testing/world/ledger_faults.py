"""Faults to plant in what the ledger says, and in what keeps a world within its bounds."""

from __future__ import annotations

from typing import Final

from headgate_studies.testing.world.mutant import Mutant

LEDGER_MUTANTS: Final = (
    Mutant(
        "the ledger has the last commit alone in flight",
        "wire.sums",
        "                later[subscription] = later.get(subscription, 0) + count\n",
        "                later[subscription] = count\n",
    ),
    Mutant(
        "versions of the catalog are remembered for ever",
        "relay.tables",
        "(KEPT if size <= _KEPT_SUBSCRIPTIONS else _FEWEST)",
        "(1000 * KEPT)",
    ),
)
