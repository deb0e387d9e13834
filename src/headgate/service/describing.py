"""Documents about what is in force: subscriptions with the keys of a deployment file, and what their filters mean."""

from __future__ import annotations

from collections import Counter
from typing import Any

from headgate.catalog.granting import as_asked
from headgate.filters import bind, context_types, filter_cost, normal_form, simplify
from headgate.filters.algebra.express import domain_expression
from headgate.filters.profiles import profile_type, relational
from headgate.filters.render import render
from headgate.grid.predicate import grid_predicate
from headgate.model import GroupRule, Quality, Stream, Subscription
from headgate.model.stream import DERIVE
from headgate.wire.codec import encode_schema
from headgate.wire.snapshot import Snapshot


def subscription_document(subscription: Subscription) -> dict[str, Any]:
    """A subscription as a deployment file writes it: given back to `parse_subscription` it is the same."""
    paused = subscription.paused is not None
    subscription = subscription.resume()
    same = ("site", "stream", "where", "resolution", "region", "policy", "context", "weight", "priority", "format")
    subscription = as_asked(subscription)
    found: dict[str, Any] = {key: getattr(subscription, key) for key in same}
    found |= {key: getattr(subscription, key) for key in ("start", "profile", "require", "context_from")}
    found["select"] = None if subscription.select is None else list(subscription.select)
    found["quality"] = quality_document(subscription.quality)
    found["every"] = None if subscription.every_s is None else f"{subscription.every_s!r} s"
    found["at_most"] = None if subscription.at_most_rows_per_s is None else f"{subscription.at_most_rows_per_s!r}/s"
    serves = subscription.serves_bytes_per_s
    found["serves"] = None if serves is None else f"{serves!r} B/s"
    found["average"] = None if subscription.average_s is None else f"{subscription.average_s!r} s"
    found["paths"] = subscription.paths if subscription.paths > 1 else None
    found["expires"] = None if subscription.expires_s is None else f"{subscription.expires_s!r} s"
    found["group"] = None if subscription.group is None else group_document(subscription.group)
    found["paused"] = paused or None
    return {key: value for key, value in found.items() if value is not None and value != {}}


def group_document(rule: GroupRule) -> dict[str, Any]:
    """How a group's rows are dealt out, with the keys of a deployment file."""
    found = {"deal": rule.deal, "lease": f"{rule.lease_s!r} s"}
    return {**found, "context": dict(rule.context)} if rule.context else found


def quality_document(quality: Quality) -> dict[str, Any]:
    """A quality with the keys of a deployment file."""
    found: dict[str, Any] = {"drop": quality.drop, "delay": f"{quality.delay_s!r} s", "at_least": quality.at_least}
    if quality.table is not None:
        table = quality.table
        found["table"] = {
            "kind": table.kind,
            "drop": list(table.drops),
            "delay": [f"{delay_s!r} s" for delay_s in table.delays_s],
            "value": [list(row) for row in table.values],
        }
    return {key: value for key, value in found.items() if value is not None}


def filter_document(subscription: Subscription, stream: Stream) -> dict[str, Any]:
    """What a subscription's filter means: its canonical text, what it simplifies to, its boxes and what it costs."""
    profile = profile_type(subscription.profile).compile(
        subscription.where, stream.schema, context_types(subscription.context)
    )
    grid = grid_predicate(subscription, stream)
    found: dict[str, Any] = {"where": profile.text, "grid": None if grid is None else grid.text}
    where = relational(profile)
    if where is not None:
        bound = bind(where, subscription.context)
        form = normal_form(bound)
        found["cost"] = filter_cost(bound.expr, subscription.context).document()
        found["simplified"] = simplify(bound).text
        found["exact"] = form.exact
        found["boxes"] = [
            {name: render(domain_expression(each, form.attributes[name])) for name, each in box.domains.items()}
            for box in form.boxes
        ]
    return found


def stream_document(stream: Stream) -> dict[str, Any]:
    """A stream as it is declared; options of its source that may be secrets are left out."""
    return {
        "name": stream.name,
        "root": stream.root,
        "source": stream.source.format,
        "schema": [dict(zip(("name", "type", "unit"), each, strict=False)) for each in encode_schema(stream.schema)],
        "key": list(stream.key),
        "event_time": stream.event_time,
        "rate_rows_per_s": stream.rate_rows_per_s,
        "admission": stream.admission.method,
        "grid": stream.options.get("grid"),
        "derive": stream.options.get(DERIVE),
    }


def links_document(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Every link that is declared or that the plan uses: delay and capacity as declared, and the streams on it."""
    deployment, plan = snapshot.deployment, snapshot.plan
    used: dict[tuple[str, str], list[str]] = {}
    for name, tree in plan.trees.items() if plan else ():
        for child, parent in tree.parents.items():
            used.setdefault((parent, child), []).append(name)
    ends = {tuple(sorted(pair)) for pair in used} | {tuple(sorted(pair)) for pair in deployment.links.pairs}
    found = []
    for one, other in sorted(each for each in ends if len(each) == 2):
        link = deployment.links.between(one, other)
        found.append(
            {
                "between": [one, other],
                "delay_s": link.delay_s,
                "capacity_bytes_per_s": link.capacity_bytes_per_s,
                "carries": [
                    {"from": a, "to": b, "streams": sorted(used[a, b])}
                    for a, b in ((one, other), (other, one))
                    if (a, b) in used
                ],
            }
        )
    return found


def sharing(snapshot: Snapshot) -> Counter[int]:
    """How many subscriptions have each delivery class."""
    return Counter(snapshot.class_ids.values())
