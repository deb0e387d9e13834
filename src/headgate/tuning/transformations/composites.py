"""Composites written with the primitives (XPORT, Table 2). Child lists are frozen before the first step."""

from __future__ import annotations

from headgate.tuning.transformations.workbench import Workbench


def subtree_promotion(bench: Workbench, site: int) -> None:
    """Before: i - site - (children). After: i - site, i - (children)."""
    for child in bench.children(site):
        bench.promote(child)


def parent_child_swap(bench: Workbench, site: int) -> None:
    """Before: p - i - (site - (a), b). After: p - site - (i - (a), b).

    The owner and its child change places; the children of each keep hanging below the place they were in.
    """
    owner = bench.parent(site)
    siblings = tuple(child for child in bench.children(owner) if child != site)
    below = bench.children(site)
    bench.promote(site)
    bench.demote(owner, site)
    for child in siblings:
        bench.promote(child)
    for child in below:
        bench.demote(child, owner)


def subtree_migration(bench: Workbench, site: int, to: int) -> None:
    """Before: i - site - (children), i - to. After: i - site, i - to - (children)."""
    below = bench.children(site)
    for child in below:
        bench.promote(child)
    for child in below:
        bench.demote(child, to)


def sibling_swap(bench: Workbench, site: int, other: int) -> None:
    """Before: i - site - (a), i - other - (b). After: i - site - (b), i - other - (a)."""
    first, second = bench.children(site), bench.children(other)
    for child in first:
        bench.promote(child)
    for child in first:
        bench.demote(child, other)
    for child in second:
        bench.promote(child)
    for child in second:
        bench.demote(child, site)


def deep_promotion(bench: Workbench, site: int) -> None:
    """Promote a site until it hangs below the owner; for units of more than three levels."""
    while bench.parent(site) != bench.unit.owner:
        bench.promote(site)


def deep_demotion(bench: Workbench, site: int, under: int) -> None:
    """Demote a site below a sibling's child; for units of more than three levels."""
    via = bench.parent(under)
    bench.demote(site, via)
    bench.demote(site, under)
