"""From the entries of a deployment file to the frozen values of `headgate.model`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headgate.catalog.document import (
    AdmissionEntry,
    GroupEntry,
    JobEntry,
    LinksEntry,
    QualityEntry,
    QueueEntry,
    RequirementEntry,
    SchemaEntry,
    SiteEntry,
    StreamEntry,
    SubscriptionEntry,
)
from headgate.catalog.server_entry import AlertsEntry, LimitsEntry, NatsEntry
from headgate.errors import HeadgateError
from headgate.model import (
    PRESETS,
    Admission,
    Column,
    GroupRule,
    Link,
    LinkQueue,
    Links,
    NatsPlace,
    Quality,
    RequestLimits,
    Schema,
    Site,
    Source,
    SparkJob,
    Stream,
    Subscription,
    parse_rate,
    parse_type,
)
from headgate.model.alerts import AlertRules
from headgate.model.roots import OPTION, RootRegion, member_name
from headgate.model.stream import DERIVE, DERIVE_STATE


def to_schema(columns: SchemaEntry) -> Schema:
    """The schema of a stream's columns."""
    return Schema(tuple(Column(name, parse_type(column.type), column.unit) for name, column in columns.items()))


def to_stream(name: str, entry: StreamEntry, schema: Schema, options: Mapping[str, str]) -> Stream:
    """A stream; `options` are those of its source, as they are written, and `schema` what that gives."""
    return Stream(
        name=name,
        schema=_with_derived(schema, entry),
        source=Source(entry.source.format, dict(options)),
        root=entry.root or "",
        key=tuple(entry.key),
        event_time=entry.event_time,
        rate_rows_per_s=_rate(entry, options),
        admission=to_admission(entry.admission),
        options={**entry.options, **_given(grid=entry.grid, gridding=entry.gridding, **_derived(entry))},
        keep_s=entry.keep,
    )


def to_admission(entry: AdmissionEntry) -> Admission:
    """What a stream does under overload."""
    return Admission(entry.method, entry.bound, dict(entry.options), to_requirement(entry.require))


def to_requirement(entry: RequirementEntry | None) -> dict[str, Any] | None:
    """A declared requirement, as it is written."""
    return None if entry is None else entry.model_dump(exclude_none=True)


def to_roots(whole: Stream, entry: StreamEntry, sources: Mapping[str, Source]) -> dict[str, Stream]:
    """The streams of the roots of a gridded one, by root; `sources` are those that roots have of their own."""
    found: dict[str, Stream] = {}
    shared = [root for root in entry.roots or {} if root not in sources]
    for root, each in (entry.roots or {}).items():
        mine = RootRegion(whole.name, root, each.region, rest=root in shared[:1], alone=root in sources)
        found[root] = replace(
            whole,
            name=member_name(whole.name, root),
            root=each.site,
            source=sources.get(root, whole.source),
            options={**whole.options, OPTION: mine.document},
        )
    return found


def _with_derived(schema: Schema, entry: StreamEntry) -> Schema:
    """The columns of the source, and behind them those that are derived."""
    if not entry.derive:
        return schema
    from headgate.deriving import with_derived

    return with_derived(schema, entry.derive, entry.event_time)


def _derived(entry: StreamEntry) -> dict[str, Any]:
    return {DERIVE: entry.derive and dict(entry.derive), DERIVE_STATE: entry.derive_state and dict(entry.derive_state)}


def _given(**documents: Any) -> dict[str, Any]:
    return {name: document for name, document in documents.items() if document is not None}


def _rate(entry: StreamEntry, options: Mapping[str, str]) -> float | None:
    """The expected rate; without one, a source that has a rate of its own knows best. None when nobody knows."""
    if entry.rate is not None:
        return entry.rate
    try:
        return parse_rate(options["rate"])
    except (KeyError, HeadgateError):
        # A generator that is given no rate makes one row a second, as fast as it can if it has a limit.
        return 1.0 if entry.source.format == "generator" and "limit" not in options else None


def to_site(name: str, entry: SiteEntry) -> Site:
    """A site."""
    return Site(
        name=name,
        upload_bytes_per_s=entry.upload,
        download_bytes_per_s=entry.download,
        position=None if entry.position is None else (entry.position[0], entry.position[1]),
        processing_delay_s=entry.processing_delay,
        nats=entry.nats,
    )


def to_links(entry: LinksEntry) -> Links:
    """All links."""
    links = [
        Link(
            frozenset(pair.between),
            entry.default_delay if pair.delay is None else pair.delay,
            pair.capacity,
            _to_queue(pair),
            follow=pair.bandwidth == "measured",
        )
        for pair in entry.pairs
    ]
    pairs = {link.ends: link for link in links}
    return Links(entry.default_delay, pairs, _to_queue(entry), only_listed=entry.only is not None)


def to_job(name: str, entry: JobEntry) -> SparkJob:
    """A Spark job."""
    return SparkJob(name, tuple(entry.streams), entry.master, entry.trigger, entry.partitions, dict(entry.spark))


def to_nats(entry: NatsEntry) -> NatsPlace:
    """Where NATS is."""
    return NatsPlace(entry.url, entry.creds, entry.listen, entry.tls.cert, entry.tls.key, entry.tls.ca, entry.mqtt)


def to_limits(entry: LimitsEntry) -> RequestLimits:
    """What one identity may take."""
    return RequestLimits(
        entry.requests,
        entry.burst,
        entry.waiting,
        entry.subscriptions,
        entry.filter_cost * 1e6,
        entry.bytes,
        entry.connections,
        entry.http,
        entry.publish,
    )


def to_alerts(entry: AlertsEntry) -> AlertRules:
    """When somebody is told, and how."""
    return AlertRules(
        entry.contract,
        entry.silent,
        entry.ledger,
        entry.log,
        entry.clear,
        tuple(entry.webhooks),
        tuple(map(tuple, entry.commands)),
    )


def _to_queue(entry: QueueEntry) -> LinkQueue:
    return LinkQueue(entry.max_rows, entry.max_bytes, entry.max_age)


def to_quality(entry: QualityEntry) -> Quality:
    """A QoS function: what is given, on the preset or the defaults."""
    base = Quality() if entry.preset is None else PRESETS[entry.preset]
    return Quality(
        drop=base.drop if entry.drop is None else entry.drop,
        delay_s=base.delay_s if entry.delay is None else entry.delay,
        at_least=entry.at_least,
        table=None if entry.table is None else entry.table.table(),
    )


def to_group(entry: GroupEntry | None) -> GroupRule | None:
    """How a group's rows are dealt out, None for a subscription with one reader."""
    return None if entry is None else GroupRule(entry.deal, entry.lease, dict(entry.context))


def to_subscription(name: str, entry: SubscriptionEntry) -> Subscription:
    """A subscription."""
    return Subscription(
        name=name,
        stream=entry.stream,
        site=entry.site,
        where=entry.where,
        select=None if entry.select is None else tuple(entry.select),
        profile=entry.profile,
        resolution=entry.resolution,
        region=entry.region,
        quality=to_quality(entry.quality),
        policy=entry.policy,
        context=dict(entry.context),
        context_from=entry.context_from,
        weight=entry.weight,
        priority=entry.priority,
        format=entry.format,
        start=entry.start,
        expires_s=entry.expires,
        owner=entry.owner,
        require=to_requirement(entry.require),
        every_s=entry.every,
        at_most_rows_per_s=entry.at_most,
        serves_bytes_per_s=entry.serves,
        group=to_group(entry.group),
        average_s=entry.average,
        paths=entry.paths,
    )
