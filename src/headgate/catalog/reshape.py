"""Changes of streams, sites, links and settings of a deployment that runs, checked as a deployment file is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from headgate.catalog.deployment_file import SourceCheck, parse_deployment
from headgate.catalog.evolution import check_evolution
from headgate.catalog.file_writing import deployment_document, merged
from headgate.catalog.problems import DeploymentError
from headgate.errors import HeadgateError, nearest
from headgate.model import Deployment, Schema

PARTS: Final = ("streams", "sites", "links", "objective", "constraints", "options")
"""The keys of a deployment file that can be changed while it runs, beside `subscriptions`."""
_NAMED: Final = ("streams", "sites")


def reshaped(
    deployment: Deployment,
    patch: Mapping[str, Any],
    *,
    whole: bool = False,
    schemas: Mapping[str, Schema] | None = None,
    check_source: SourceCheck | None = None,
) -> Deployment:
    """The deployment after a merge patch (RFC 7396) of its file; subscriptions and plan stay as they are.

    `null` ends a stream or a site. Of `links.pairs` only the pairs that are listed change. With `whole`, a stream, a
    site or a pair that is named is replaced, and keys that it had and that are not given get their defaults.

    Raises:
        HeadgateError: It has problems; all of them are listed, each with the key that it is about.
    """
    for key in patch:
        if key not in PARTS:
            close = nearest(str(key), PARTS)
            raise HeadgateError(
                f"{str(key)[:60]!r} of a deployment cannot be changed while it runs",
                hint=f"did you mean {close!r}?" if close else f"these can: {', '.join(PARTS)}",
            )
    document = deployment_document(deployment)
    given = dict(patch)
    for part in _NAMED:
        entries = _mapping(given.pop(part, None), part)
        for name, value in entries.items():
            if value is None and name not in document[part]:
                close = nearest(str(name), document[part])
                hint = f"did you mean {close!r}?" if close else None
                raise HeadgateError(f"no {part[:-1]} {str(name)[:60]!r}", hint=hint, kind="unknown")
            if value is None:
                del document[part][name]
            else:
                before = {} if whole else document[part].get(name, {})
                document[part][name] = merged(before, value)
    links = dict(_mapping(given.pop("links", None), "links"))
    pairs = links.pop("pairs", None)
    pairs = [] if pairs is None else pairs
    document = merged(document, {**given, "links": links})
    document["links"]["pairs"] = _pairs(document["links"]["pairs"], pairs, document["sites"], whole=whole)
    try:
        found = parse_deployment(json.dumps(document), "the change", schemas, check_source)
    except DeploymentError as error:
        said = (f"{each.message} ({each.hint})" if each.hint else each.message for each in error.problems)
        raise HeadgateError("; ".join(said)) from None
    after = replace(found, subscriptions=deployment.subscriptions, plan=deployment.plan)
    check_evolution(deployment, after)
    return after


def _mapping(value: Any, key: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise HeadgateError(f"{key!r} is no mapping", hint=f"write `{key}: {{NAME: {{...}}}}`")
    return value


def _pairs(before: list[dict[str, Any]], given: Any, sites: Mapping[str, Any], *, whole: bool) -> list[Any]:
    """The pairs of links after some were changed; those of a site that is gone go with it."""
    ends = [tuple(each["between"]) for each in before]
    found: dict[Any, Any] = {key: each for key, each in zip(ends, before, strict=True) if set(key) <= set(sites)}
    if not isinstance(given, list):
        raise HeadgateError("'links.pairs' is no list", hint="write `links: {pairs: [{between: [A, B], ...}]}`")
    for each in given:
        between = each.get("between") if isinstance(each, Mapping) else None
        if not isinstance(between, list) or not all(isinstance(end, str) for end in between):
            raise HeadgateError("a pair of `links.pairs` has no `between`", hint="name two sites: `between: [A, B]`")
        key = tuple(sorted(between))
        after = merged({} if whole else found.get(key, {}), each)
        if after.keys() == {"between"}:
            found.pop(key, None)  # it has nothing of its own any more
        else:
            found[key] = {**after, "between": list(key)}
    return list(found.values())
