"""Sites that nobody planned for: they get a parent in the trees of the streams that they subscribe to."""

from __future__ import annotations

import contextlib

from headgate.model import Plan, Tree
from headgate.planning import ProblemError
from headgate.planning.covering import Comparisons
from headgate.planning.joined import joined
from headgate.planning.measured import Figures
from headgate.wire.snapshot import Snapshot


def extend_plan(snapshot: Snapshot, known: Comparisons | None = None, figures: Figures | None = None) -> Plan | None:
    """The plan with every subscribing site in its stream's tree, None when nothing is missing.

    A site that nobody planned for gets the parent that is best by what was measured so far and what the deployment
    declares of the rest, and nobody else moves. Whoever extends one plan after another keeps what is `known` of how
    subscriptions compare.
    """
    missing = _missing(snapshot)
    if missing is None:
        return None
    if snapshot.plan is not None:
        with contextlib.suppress(ProblemError):  # what cannot be planned is served by the root
            problem = (figures or Figures()).problem(snapshot.deployment, snapshot.class_ids, known)
            return joined(problem, snapshot.plan, missing)
    trees = dict(snapshot.plan.trees) if snapshot.plan else {}
    for name, stream in snapshot.deployment.streams.items():
        parents = trees[name].parents if name in trees else {}
        added = {site: stream.root for place, site in missing if place == name}
        trees[name] = Tree(name, stream.root, {**parents, **added})
    return Plan(trees)


def _missing(snapshot: Snapshot) -> list[tuple[str, str]] | None:
    """Streams and sites that subscribe and are in no tree; None when there are none and every stream has a tree."""
    trees = snapshot.plan.trees if snapshot.plan else {}
    streams = snapshot.deployment.streams
    wanted = {(each.stream, each.site) for each in snapshot.deployment.subscriptions.values() if each.stream in streams}
    served = {(name, site) for name, tree in trees.items() for site in tree.parents}
    missing = wanted - served - {(name, stream.root) for name, stream in streams.items()}
    return sorted(missing) if missing or streams.keys() - trees.keys() else None
