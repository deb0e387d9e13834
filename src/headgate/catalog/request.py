"""A single subscription from a client's request, checked like one in a deployment file."""

from __future__ import annotations

import json
from typing import Any

from headgate.catalog.checks import check_subscription
from headgate.catalog.convert import to_subscription
from headgate.catalog.document import SubscriptionEntry
from headgate.catalog.positions import dotted, read_document
from headgate.catalog.wording import validate
from headgate.errors import HeadgateError
from headgate.model import Deployment, Subscription


def parse_subscription(name: str, document: Any, deployment: Deployment) -> Subscription:
    """The subscription that a document describes, against the streams and sites of a deployment.

    Raises:
        HeadgateError: It has problems; all of them are listed, each with the key that it is about.
    """
    read = read_document(json.dumps({name: document}), f"subscription {name!r}")
    entry, problems = validate(SubscriptionEntry, read, (name,), read.value[name])
    if entry is None:
        raise HeadgateError("; ".join(_said(problem.message, problem.hint) for problem in problems))
    subscription = to_subscription(name, entry)
    findings = list(check_subscription(subscription, dict(deployment.streams), deployment.sites))
    if findings:
        lines = [_said(f"{dotted((name, *finding.path))}: {finding.message}", finding.hint) for finding in findings]
        raise HeadgateError("; ".join(lines))
    return subscription


def _said(message: str, hint: str | None) -> str:
    return f"{message} ({hint})" if hint else message
