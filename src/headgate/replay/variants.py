"""What is compared: the deployment as its file says, and with another plan or other policies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import yaml

from headgate.catalog import Catalog
from headgate.errors import HeadgateError, nearest
from headgate.model import Admission, Deployment, Plan
from headgate.planning import plan_deployment
from headgate.planning.construct import ALGORITHMS
from headgate.planning.document import parse_plan
from headgate.planning.search import Search
from headgate.reduction import parse_policy
from headgate.service.extending import extend_plan, first_plan
from headgate.wire.snapshot import Snapshot

AS_DEPLOYED: Final = "as deployed"
_OTHERS: Final = "*"
_SEARCH: Final = Search(steps=20_000)


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to deliver the same rows: what it is called, and the catalog that says how."""

    name: str
    snapshot: Snapshot


def make_variants(deployment: Deployment, plans: Sequence[str], policies: Sequence[Path]) -> list[Variant]:
    """The deployment beside a plan or policies that are given, or two plans or two sets of policies beside each other.

    One of a kind is compared with the file's own, two with each other; one of the other kind then holds for both.
    """
    if len(plans) > 1 and len(policies) > 1:
        raise HeadgateError(
            "two plans and two sets of policies are four deployments",
            hint="compare two plans, or two sets of policies; one of the other kind then holds for both",
        )
    alone = len(plans) < 2 and len(policies) < 2
    found = [_variant(AS_DEPLOYED, deployment, None, None)] if alone else []
    chosen_plans: list[str | None] = list(plans) or [None]
    chosen_policies: list[Path | None] = list(policies) or [None]
    for plan, given in product(chosen_plans, chosen_policies):
        if plan is not None or given is not None:
            shown = [plan if len(plans) > 1 or alone else None, given if len(policies) > 1 or alone else None]
            name = " and ".join(Path(each).name for each in shown if each is not None)
            found.append(_variant(name, deployment, plan, given))
    return found


def _variant(name: str, deployment: Deployment, plan: str | None, policies: Path | None) -> Variant:
    streams = {each: replace(stream, admission=Admission()) for each, stream in deployment.streams.items()}
    given = replace(deployment, streams=streams)
    if policies is not None:
        given = with_policies(given, policies)
    with Catalog.open("sqlite://") as catalog:
        catalog.apply(given)
        snapshot = catalog.snapshot()
    chosen = given.plan if plan is None else read_plan(plan, given)
    if chosen is None:
        chosen = first_plan(snapshot, None, _SEARCH)
    planned = replace(snapshot, plan=chosen, revision=1)
    return Variant(name, replace(planned, plan=extend_plan(planned, fixed=True) or chosen))


def read_plan(text: str, deployment: Deployment) -> Plan:
    """A plan by the name of an algorithm, or from a file: what `headgate plan --json` prints, or a file's `plan:`."""
    path = Path(text)
    if not path.exists():
        names = (*(each.name for each in ALGORITHMS), "search")
        if text in names:
            return plan_deployment(replace(deployment, plan=None), text).plan
        raise HeadgateError(
            f"there is no plan {text!r}",
            hint="give a file that `headgate plan --json` has written, or one of " + ", ".join(names),
        )
    document = _read(path, "plan")
    document = document.get("plan", document)
    if document and all(isinstance(tree, Mapping) and "root" not in tree for tree in document.values()):
        roots = {name: stream.root for name, stream in deployment.streams.items()}
        document = {name: {"root": roots.get(name, ""), "parents": tree} for name, tree in document.items()}
    plan = parse_plan(document)
    for name, tree in plan.trees.items():
        if name not in deployment.streams:
            raise HeadgateError(f"the plan has a stream {name!r}, the deployment has none", where=str(path))
        strange = sorted({*tree.parents, *tree.parents.values()} - deployment.sites.keys())
        if strange:
            raise HeadgateError(f"the plan has a site {strange[0]!r}, the deployment has none", where=str(path))
        if tree.root != deployment.streams[name].root:
            raise HeadgateError(
                f"the plan's root of {name!r} is {tree.root!r}, the deployment's is {deployment.streams[name].root!r}",
                where=str(path),
            )
    return plan


def with_policies(deployment: Deployment, path: Path) -> Deployment:
    """The deployment with other policies, from a YAML map of subscriptions; `*` is for all that are not named."""
    document = _read(path, "set of policies")
    changed = dict(deployment.subscriptions)
    for name in document:
        if name != _OTHERS and name not in changed:
            close = nearest(str(name), changed)
            hint = f"did you mean {close!r}?" if close else "subscriptions are " + ", ".join(sorted(changed)[:10])
            raise HeadgateError(f"there is no subscription {name!r}", where=str(path), hint=hint)
    for name, subscription in deployment.subscriptions.items():
        if name in document or _OTHERS in document:
            policy = document[name] if name in document else document[_OTHERS]
            parse_policy(policy, deployment.streams[subscription.stream].schema)
            changed[name] = replace(subscription, policy=policy)
    return replace(deployment, subscriptions=changed)


def _read(path: Path, what: str) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise HeadgateError(f"this {what} cannot be read: {error}", where=str(path)) from None
    if not isinstance(document, dict):
        raise HeadgateError(f"a {what} is a map of names", where=str(path), hint="docs/replay.md shows one")
    return document
