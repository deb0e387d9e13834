"""Questions to a plan: the same deployment with a site, link or stream changed in words.

`site paris upload=1Mbit/s download=unknown`, `link paris-oslo delay=40ms capacity=2Mbit/s`, `stream wind rate=500/s`,
`without site lyon` (its subscriptions go with it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headgate.errors import nearest
from headgate.model import (
    Deployment,
    Link,
    parse_bandwidth,
    parse_duration,
    parse_rate,
)
from headgate.planning.problem import ProblemError

_SITE: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "upload": ("upload_bytes_per_s", parse_bandwidth),
    "download": ("download_bytes_per_s", parse_bandwidth),
    "processing": ("processing_delay_s", parse_duration),
}
_LINK: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "delay": ("delay_s", parse_duration),
    "capacity": ("capacity_bytes_per_s", parse_bandwidth),
}
_STREAM: Mapping[str, tuple[str, Callable[[str], Any]]] = {"rate": ("rate_rows_per_s", parse_rate)}
_FORMS = "'site NAME upload=..', 'link A-B delay=..', 'stream NAME rate=..' or 'without site NAME'"


def change(deployment: Deployment, text: str) -> Deployment:
    """The deployment as it would be; a plan that it gives is left out, so that one is computed."""
    words = text.split()
    if words[:2] == ["without", "site"] and len(words) == 3:
        return _without(deployment, words[2])
    if len(words) < 3 or words[0] not in ("site", "link", "stream"):
        raise ProblemError(f"{text!r} is not a question", hint=f"write {_FORMS}")
    kind, name, settings = words[0], words[1], _settings(words[2:], text)
    if kind == "site":
        site = _known(deployment.sites, name, "site")
        changed = replace(site, **_values(settings, _SITE))
        return replace(deployment, sites={**deployment.sites, name: changed}, plan=None)
    if kind == "stream":
        stream = _known(deployment.streams, name, "stream")
        return replace(
            deployment,
            streams={**deployment.streams, name: replace(stream, **_values(settings, _STREAM))},
            plan=None,
        )
    return _link(deployment, name, settings, text)


def _link(deployment: Deployment, name: str, settings: Mapping[str, str], text: str) -> Deployment:
    one, dash, other = name.partition("-")
    if not dash:
        raise ProblemError(f"{text!r} names no link", hint="write the two sites as A-B")
    for end in (one, other):
        _known(deployment.sites, end, "site")
    link: Link = replace(deployment.links.between(one, other), **_values(settings, _LINK))
    pairs = {**deployment.links.pairs, link.ends: link}
    return replace(deployment, links=replace(deployment.links, pairs=pairs), plan=None)


def _without(deployment: Deployment, name: str) -> Deployment:
    _known(deployment.sites, name, "site")
    rooted = [stream.name for stream in deployment.streams.values() if stream.root == name]
    if rooted:
        raise ProblemError(f"site {name!r} is the root of stream {rooted[0]!r}", hint="a stream needs its root")
    return replace(
        deployment,
        sites={key: site for key, site in deployment.sites.items() if key != name},
        subscriptions={key: s for key, s in deployment.subscriptions.items() if s.site != name},
        links=replace(
            deployment.links, pairs={ends: link for ends, link in deployment.links.pairs.items() if name not in ends}
        ),
        plan=None,
    )


def _known(items: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in items:
        close = nearest(name, items)
        hint = f"did you mean {close!r}?" if close else f"known: {', '.join(items)}"
        raise ProblemError(f"no {what} {name!r}", hint=hint)
    return items[name]


def _settings(words: list[str], text: str) -> dict[str, str]:
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ProblemError(f"{word!r} in {text!r} is not KEY=VALUE", hint=f"write {_FORMS}")
        found[key] = value
    return found


def _values(settings: Mapping[str, str], known: Mapping[str, tuple[str, Callable[[str], Any]]]) -> dict[str, Any]:
    values = {}
    for key, text in settings.items():
        field, parse = _known(known, key, "setting")
        values[field] = parse(text)
    return values
