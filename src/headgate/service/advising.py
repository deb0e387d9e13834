"""Advice on reduction policies of a running deployment: what each level would drop of the rows that came lately."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from headgate.client.names import known_names
from headgate.errors import HeadgateError
from headgate.model import Schema, Stream, Subscription
from headgate.reduction import Policy, parse_policy
from headgate.reduction.advise import Advice, advise, candidates, kept_share
from headgate.service.previewing import RecentRows, matching
from headgate.wire.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class PolicyQuestion:
    """Which policy to judge, and how much may stay of the rows.

    Without a policy the subscription's own is judged, or one that suits the columns where it has none. `target` is a
    fraction of the rows, or a rate such as `50/s`. `window` is how many rows a queue holds when it is packed.
    """

    policy: Mapping[str, Any] | Policy | None = None
    target: float | str = 0.5
    window: int = 1000
    key: str | None = None


@dataclass(frozen=True, slots=True)
class PolicyAdvice:
    """What was found, for the policy as it was judged."""

    advice: Advice
    policy: Policy

    def to_document(self) -> dict[str, Any]:
        """JSON-ready: the levels as written and in the proposed order, each with the fractions that it drops."""
        return {**asdict(self.advice), "policy": self.policy.text}


def subscription_rows(recent: RecentRows, subscription: Subscription, stream: Stream) -> pa.RecordBatch:
    """The rows of a subscription among recent ones, oldest first, with the columns that it takes."""
    names = list(subscription.select or stream.schema.names)
    found = [
        rows.filter(pa.array(matching(subscription, stream, rows))).select(names)
        for rows, _ in reversed(recent.batches)
    ]
    schema = pa.schema([stream.schema.arrow.field(name) for name in names])
    batches = pa.Table.from_batches(found, schema=schema).combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)


@dataclass(frozen=True, slots=True)
class LatelyReceived:
    """The recent rows that a subscription got: with their columns, its policy, and how fast such rows come."""

    rows: pa.RecordBatch
    schema: Schema
    policy: Mapping[str, Any] | None
    rate_rows_per_s: float | None


def received_lately(snapshot: Snapshot, name: str, recent: RecentRows, rate_rows_per_s: float | None) -> LatelyReceived:
    """What a subscription got of the recent rows of its stream, which come so fast; refused where it got none."""
    subscription = snapshot.deployment.subscriptions[the_one(name, snapshot)].resume()
    stream = snapshot.deployment.streams[subscription.stream]
    rows = subscription_rows(recent, subscription, stream)
    if not rows.num_rows:
        raise HeadgateError(f"no row of {name!r} came lately", hint="ask again when rows flow", kind="unavailable")
    rate = None if rate_rows_per_s is None else rate_rows_per_s * rows.num_rows / recent.evaluated
    return LatelyReceived(rows, stream.schema.select(rows.schema.names), subscription.policy, rate)


def the_one(name: str, snapshot: Snapshot) -> str:
    """The name of a subscription that has one part; any other is refused."""
    if known_names(name, snapshot) != [name]:
        raise HeadgateError(f"{name!r} has a part at each root of its stream", hint="name one of them", kind="conflict")
    return name


def advise_on(
    rows: pa.RecordBatch, schema: Schema, question: PolicyQuestion, rate_rows_per_s: float | None = None
) -> PolicyAdvice:
    """Judge a policy on rows. `rate_rows_per_s` is how fast they come, for a target that is a rate."""
    if not rows.num_rows:
        raise HeadgateError("there is no row to judge a policy by", hint="give rows, or ask when some have come")
    policy = question.policy
    if policy is None:
        policy = candidates(schema, rows, question.key)
    elif not isinstance(policy, Policy):
        policy = parse_policy(policy, schema, where="policy")
    return PolicyAdvice(advise(policy, rows, kept_share(question.target, rate_rows_per_s), question.window), policy)
