"""A single subscription from a client's request, checked like one in a deployment file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headgate.catalog.checks import check_spread
from headgate.catalog.convert import to_subscription
from headgate.catalog.document import SubscriptionEntry
from headgate.catalog.positions import MAX_DEPTH, Document, dotted
from headgate.catalog.profiles import row_limit_us
from headgate.catalog.wording import validate
from headgate.errors import HeadgateError
from headgate.filters.limits import is_number
from headgate.model import Deployment, Subscription

_MOST = 32_768  # values of a request; a context has at most 4,096, a polygon 2,000 corners
_LONGEST = 262_144  # characters of any text; a filter has fewer
_LARGE = 10**18  # from here on whole numbers become others, as in a file
_HALF = re.compile("[\ud800-\udfff]")


def parse_subscription(name: str, document: Any, deployment: Deployment) -> list[Subscription]:
    """The subscription that a document describes, against the streams and sites of a deployment.

    To a stream of several roots it is one for each root that may have rows of it.

    Raises:
        HeadgateError: It has problems; all of them are listed, each with the key that it is about.
    """
    what = f"subscription {name!r}"
    given = _Reading(what).value(document)
    entry, problems = validate(SubscriptionEntry, Document(what, {name: given}, {}), (name,), given)
    if entry is None:
        raise HeadgateError("; ".join(_said(problem.message, problem.hint) for problem in problems))
    streams = dict(deployment.streams)
    limit_us = row_limit_us(deployment.options)
    found, findings = check_spread(to_subscription(name, entry), streams, streams, deployment.sites, limit_us)
    if findings:
        lines = [_said(f"{dotted((name, *finding.path))}: {finding.message}", finding.hint) for finding in findings]
        raise HeadgateError("; ".join(lines))
    return [each.pause() for each in found] if entry.paused else found


def parse_subscriptions(documents: Mapping[str, Any], deployment: Deployment) -> dict[str, list[Subscription]]:
    """The subscriptions that documents describe, by name; see `parse_subscription`.

    Those that differ in their names and in numbers of their contexts only are read and checked once.
    """
    alike: dict[str, Subscription] = {}
    found: dict[str, list[Subscription]] = {}
    for name, document in documents.items():
        likeness = _likeness(document)
        first = None if likeness is None else alike.get(likeness)
        if first is not None:
            found[name] = [replace(first, name=name, context=dict(document.get("context", {})))]
            continue
        found[name] = made = parse_subscription(name, document, deployment)
        if likeness is not None and len(made) == 1 and made[0].name == name:  # not one of several roots
            alike[likeness] = made[0]
    return found


def _likeness(document: Any) -> str | None:
    """A text that is equal for documents which are read alike; None where that depends on a name or on values.

    Numbers of a context are in it by their types. A grid may place a subscription by them, and cost is not all they
    decide then.
    """
    context = document.get("context", {}) if isinstance(document, dict) else None
    if not isinstance(context, dict) or "context_from" in document:
        return None
    if context and ({"region", "resolution"} & document.keys() or not all(map(_is_small, context.values()))):
        return None
    types = {name: type(value).__name__ for name, value in context.items()}
    return json.dumps({**document, "context": types} if "context" in document else document, sort_keys=True)


def _is_small(value: Any) -> bool:
    """Whether a value is a number that is read as it is written."""
    return is_number(value) and (not isinstance(value, int) or abs(value) < _LARGE)


def _said(message: str, hint: str | None) -> str:
    return f"{message} ({hint})" if hint else message


class _Reading:
    """Values of a JSON document as those of a deployment file: within its limits, and with numbers that fit."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._count = 0

    def value(self, given: Any, depth: int = 0) -> Any:
        self._count += 1
        if depth > MAX_DEPTH:
            raise self._refused(f"values are nested more than {MAX_DEPTH} deep", "it needs less than ten levels")
        if self._count > _MOST:
            raise self._refused(f"it has more than {_MOST:,} values", "ask for less")
        if isinstance(given, dict):
            return {self._text(key): self.value(item, depth + 1) for key, item in given.items()}
        if isinstance(given, list):
            return [self.value(item, depth + 1) for item in given]
        if isinstance(given, str):
            return self._text(given)
        if isinstance(given, float) and not math.isfinite(given):
            raise self._refused(f"{given} is no value", "use finite numbers")
        if isinstance(given, int) and not isinstance(given, bool) and abs(given) >= _LARGE:
            return float(given) if abs(given) < 10**300 else str(given)  # as in a file
        return given

    def _text(self, given: object) -> str:
        text = str(given)
        if len(text) > _LONGEST:
            raise self._refused(f"a text has {len(text):,} characters, at most {_LONGEST:,} are accepted", "shorten it")
        if _HALF.search(text):
            raise self._refused(f"{text[:60]!r} has half a character", "write text in UTF-8, or both halves as escapes")
        return text

    def _refused(self, message: str, hint: str) -> HeadgateError:
        return HeadgateError(f"{self._what}: {message}", hint=hint)
