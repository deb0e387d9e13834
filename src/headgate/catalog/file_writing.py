"""Streams, sites and links as a deployment file writes them: read again, each is what it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.model import Admission, Deployment, LinkQueue, Links, Site, Source, SparkJob, Stream
from headgate.model.roots import OPTION, members_of, root_region
from headgate.model.stream import DERIVE, DERIVE_STATE
from headgate.wire.codec import encode_schema

_OWN_KEYS = ("grid", "gridding", DERIVE, DERIVE_STATE)
"""Options of a stream that have keys of their own in the file."""


def deployment_document(deployment: Deployment) -> dict[str, Any]:
    """A deployment without its subscriptions and its plan, with the keys of a deployment file."""
    return {
        "streams": {name: stream_document(deployment, name) for name in stream_names(deployment)},
        "sites": {name: site_document(site) for name, site in deployment.sites.items()},
        "links": links_document(deployment.links),
        "objective": deployment.objective,
        "constraints": list(deployment.constraints),
        "options": dict(deployment.options),
        **({"jobs": {name: _job(job) for name, job in deployment.jobs.items()}} if deployment.jobs else {}),
    }


def stream_names(deployment: Deployment) -> list[str]:
    """The streams of a deployment as its file names them: one of several roots once."""
    regions = {name: root_region(stream) for name, stream in deployment.streams.items()}
    return list(dict.fromkeys(name if found is None else found.of for name, found in regions.items()))


def stream_document(deployment: Deployment, name: str) -> dict[str, Any]:
    """A stream, with `roots` where it has several."""
    if name in deployment.streams:
        return _stream(deployment.streams[name])
    members = members_of(deployment.streams, name)
    regions = {root: root_region(stream) for root, stream in members.items()}
    # Of roots that share a source the first one takes the rest.
    regions = dict(sorted(regions.items(), key=lambda each: each[1] is None or not each[1].rest))
    shared = [root for root, found in regions.items() if found is not None and not found.alone]
    found = _stream(members[(shared or list(members))[0]])
    del found["root"]
    found["roots"] = {
        root: {
            "site": members[root].root,
            "region": {} if region is None else dict(region.region),
            **({"source": _source(members[root].source)} if region is not None and region.alone else {}),
        }
        for root, region in regions.items()
    }
    return found


def _stream(stream: Stream) -> dict[str, Any]:
    options = {key: value for key, value in stream.options.items() if key not in (*_OWN_KEYS, OPTION)}
    return _given(
        root=stream.root,
        schema={
            name: kind if not unit else {"type": kind, "unit": unit[0]}
            for name, kind, *unit in encode_schema(stream.source_schema)
        },
        source=_source(stream.source),
        key=list(stream.key),
        event_time=stream.event_time,
        rate=_with_unit(stream.rate_rows_per_s, "/s"),
        admission=_admission(stream.admission),
        keep=_with_unit(stream.keep_s, " s"),
        options=options,
        **{key: stream.options.get(key) for key in _OWN_KEYS},
    )


def _job(job: SparkJob) -> dict[str, Any]:
    return _given(
        streams=list(job.streams),
        master=job.master,
        trigger=_with_unit(job.trigger_s, " s"),
        partitions=job.partitions,
        spark=dict(job.spark),
    )


def _source(source: Source) -> dict[str, Any]:
    return {"format": source.format, **source.options}


def _admission(admission: Admission) -> dict[str, Any]:
    if admission.require is not None:
        return _given(require=dict(admission.require), options=dict(admission.options))
    return _given(method=admission.method, bound=_with_unit(admission.bound_s, " s"), options=dict(admission.options))


def site_document(site: Site) -> dict[str, Any]:
    """A site."""
    return _given(
        upload=_with_unit(site.upload_bytes_per_s, " B/s"),
        download=_with_unit(site.download_bytes_per_s, " B/s"),
        position=None if site.position is None else list(site.position),
        processing_delay=_with_unit(site.processing_delay_s or None, " s"),
        nats=site.nats,
    )


def links_document(links: Links) -> dict[str, Any]:
    """All links."""
    pairs = [
        {
            "between": sorted(link.ends),
            "delay": _with_unit(link.delay_s, " s"),
            **_given(capacity=_with_unit(link.capacity_bytes_per_s, " B/s")),
            **({"bandwidth": "measured"} if link.follow else {}),
            **_queue(link.queue),
        }
        for link in sorted(links.pairs.values(), key=lambda each: sorted(each.ends))
    ]
    only = {"only": "listed"} if links.only_listed else {}
    return {"default_delay": _with_unit(links.default_delay_s, " s"), "pairs": pairs, **only, **_queue(links.queue)}


def _queue(queue: LinkQueue) -> dict[str, Any]:
    return _given(max_rows=queue.max_rows, max_bytes=queue.max_bytes, max_age=_with_unit(queue.max_age_s, " s"))


def _with_unit(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{value!r}{unit}"


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value not in ({}, [])}


def merged(document: Any, patch: Any) -> Any:
    """A document with a merge patch applied (RFC 7396): `null` takes a key out.

    >>> merged({"a": 1, "b": {"c": 2, "d": 3}}, {"a": None, "b": {"d": 4}})
    {'b': {'c': 2, 'd': 4}}
    """
    if not isinstance(patch, Mapping):
        return patch
    found = dict(document) if isinstance(document, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found
