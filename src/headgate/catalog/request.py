"""A single subscription from a client's request, checked like one in a deployment file."""

from __future__ import annotations

import json
from typing import Any

from headgate.catalog.checks import check_spread
from headgate.catalog.convert import to_subscription
from headgate.catalog.document import SubscriptionEntry
from headgate.catalog.positions import dotted, read_document
from headgate.catalog.wording import validate
from headgate.errors import HeadgateError
from headgate.model import Deployment, Subscription


def parse_subscription(name: str, document: Any, deployment: Deployment) -> list[Subscription]:
    """The subscription that a document describes, against the streams and sites of a deployment.

    To a stream of several roots it is one for each root that may have rows of it.

    Raises:
        HeadgateError: It has problems; all of them are listed, each with the key that it is about.
    """
    read = read_document(json.dumps({name: document}), f"subscription {name!r}")
    entry, problems = validate(SubscriptionEntry, read, (name,), read.value[name])
    if entry is None:
        raise HeadgateError("; ".join(_said(problem.message, problem.hint) for problem in problems))
    streams = dict(deployment.streams)
    found, findings = check_spread(to_subscription(name, entry), streams, streams, deployment.sites)
    if findings:
        lines = [_said(f"{dotted((name, *finding.path))}: {finding.message}", finding.hint) for finding in findings]
        raise HeadgateError("; ".join(lines))
    return found


def _said(message: str, hint: str | None) -> str:
    return f"{message} ({hint})" if hint else message
