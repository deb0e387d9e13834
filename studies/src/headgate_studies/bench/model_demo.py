"""The demo's deployment as `headgate bench model` runs it: faster, without an end, nobody too selective to be counted.

A drop is only told apart from chance by many rows. Sixteen of the demo's fifty subscriptions are so selective that ten
thousand rows of theirs would take minutes to hours at ten times the rates; they ask for more here (`WIDER`), so that
everybody is owed 100 rows a second then. Everything else is the demo's: streams, sites, links, columns, formats, who
wants what where.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from headgate.catalog import parse_deployment
from headgate.model import Deployment, Links, Site
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate.service.demo.run import demo_file

WIDER: Final[Mapping[str, Mapping[str, Any]]] = {
    "weather-frost": {"where": "temp < 6"},
    "weather-low": {"where": "pressure < 1012 and not (rain = 0)"},
    "weather-near-ship": {"context": {"lat": 57.0, "lon": 2.0, "radius": 9.0}},
    "fleet-faults": {"where": "status in ('fault', 'idle')"},
    "fleet-copy": {"where": "status in ('fault', 'idle')"},
    "fleet-one": {"where": "vehicle like 'v_4_'"},
    "fleet-port": {"where": "status <> 'moving' and fuel < 50"},
    "fleet-watch": {"context": {"watched": [f"v{number:03d}" for number in range(1, 200, 13)]}},
    "pulse-alarms": {"where": "alarm or heart_rate > 80"},
    "pulse-alarms-paris": {"where": "alarm or heart_rate > 80"},
    "pulse-oxygen": {"where": "spo2 < 97"},
    "pulse-fever": {"where": "temp >= 37.0"},
    "pulse-fast": {"where": "heart_rate > 80"},
    "pulse-even": {"where": "heart_rate % 2 = 0 and upper(ward) <> 'SURGERY'"},
    "pulse-second": {"where": "second(at) % 6 = 0"},
    "pulse-ship": {"where": "(alarm or heart_rate > 80) and ward <> 'surgery'"},
}
"""What the most selective subscriptions ask for instead."""


def faster(factor: float, shed_after: str) -> Deployment:
    """The demo's deployment without an end, at so many times its rates, everybody's rows given up at random."""
    deployment = parse_deployment(demo_file().read_text(encoding="utf-8"), "demo.yaml", GENERATOR_SCHEMAS)
    streams = {}
    for name, stream in deployment.streams.items():
        options = {key: value for key, value in stream.source.options.items() if key != "limit"}
        rate = (stream.rate_rows_per_s or 1.0) * factor
        source = replace(stream.source, options={**options, "rate": str(rate)})
        streams[name] = replace(stream, source=source, rate_rows_per_s=rate)
    subscriptions = {
        name: replace(each, policy=None, context_from=None, **WIDER.get(name, {}))
        for name, each in deployment.subscriptions.items()
    }
    options = {**deployment.options, "shed_after": shed_after}
    return replace(deployment, streams=streams, subscriptions=subscriptions, options=options)


def scaled(deployment: Deployment, by: float) -> Deployment:
    """A deployment with so many times its bandwidths."""

    def times(rate: float | None) -> float | None:
        return None if rate is None else rate * by

    def site(one: Site) -> Site:
        up, down = times(one.upload_bytes_per_s), times(one.download_bytes_per_s)
        return replace(one, upload_bytes_per_s=up, download_bytes_per_s=down)

    pairs = {
        ends: replace(link, capacity_bytes_per_s=times(link.capacity_bytes_per_s))
        for ends, link in deployment.links.pairs.items()
    }
    links = Links(deployment.links.default_delay_s, pairs)
    return replace(deployment, sites={name: site(one) for name, one in deployment.sites.items()}, links=links)
