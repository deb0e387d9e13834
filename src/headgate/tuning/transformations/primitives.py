"""The two primitives (XPORT, section 3.1, figure 3 a and b)."""

from __future__ import annotations

from headgate.tuning.transformations.workbench import Workbench


def child_promotion(bench: Workbench, site: int) -> None:
    """Before: i - j - site. After: i - j, i - site."""
    bench.promote(site)


def child_demotion(bench: Workbench, site: int, under: int) -> None:
    """Before: i - site, i - under. After: i - under - site."""
    bench.demote(site, under)
