"""Changing streams, sites, links and settings of a deployment as a merge patch of its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.catalog import load_deployment, parse_deployment
from headgate.catalog.reshape import reshaped
from headgate.errors import HeadgateError
from headgate.model import Deployment
from headgate.pipeline.sources import GENERATOR_SCHEMAS, check_source

ROOT = Path(__file__).parents[2]
FILES = sorted(
    [*ROOT.glob("examples/*/*.yaml"), *ROOT.glob("src/headgate/**/*.yaml"), ROOT / "tests/data/headgate.yaml"]
)


def change(deployment: Deployment, patch: dict[str, Any], **more: Any) -> Deployment:
    return reshaped(deployment, patch, schemas=GENERATOR_SCHEMAS, check_source=check_source, **more)


@pytest.fixture
def deployment() -> Deployment:
    return load_deployment(ROOT / "tests/data/headgate.yaml", GENERATOR_SCHEMAS, check_source)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.name}")
def test_what_is_written_of_a_deployment_is_read_as_what_it_was(file: Path) -> None:
    known = load_deployment(file, GENERATOR_SCHEMAS, check_source)
    again = change(known, {})
    assert replace(again, nats=known.nats, limits=known.limits) == known


ROOTS = """
sites: {north: , south: }
streams:
  weather:
    schema: {x: double, y: double, at: timestamp, t: double}
    source: {format: json, path: /data/in}
    event_time: at
    grid: {x: {column: x, size: 8, bounds: [0, 8]}, y: {column: y, size: 8, bounds: [0, 8]}}
    roots:
      upper: {site: north, region: {box: {x: [0, 8], y: [4, 8]}}}
      centre: {site: north, region: {box: {x: [0, 4], y: [0, 4]}}}
      lower: {site: south, region: {box: {x: [4, 8], y: [0, 4]}}, source: {format: json, path: /data/south}}
"""


def test_a_stream_of_several_roots_is_read_as_what_it_was() -> None:
    known = parse_deployment(ROOTS, "roots.yaml")
    known = replace(known, streams=dict(sorted(known.streams.items())))  # as a catalog gives them
    assert len(known.streams) == 3
    assert change(known, {}).streams == known.streams
    faster = change(known, {"streams": {"weather": {"rate": "9/s"}}})
    assert {each.rate_rows_per_s for each in faster.streams.values()} == {9.0}


def test_a_patch_changes_what_it_names_and_nothing_else(deployment: Deployment) -> None:
    site = next(iter(deployment.sites))
    stream = next(iter(deployment.streams))
    root = deployment.streams[stream].root
    after = change(
        deployment,
        {
            "sites": {site: {"upload": "3 MB/s"}, "tromso": {}},
            "streams": {stream: {"rate": "77/s"}},
            "links": {"pairs": [{"between": ["tromso", root], "delay": "40 ms"}]},
            "objective": "minimise average(path_latency)",
        },
    )
    assert after.sites[site] == replace(deployment.sites[site], upload_bytes_per_s=3e6)
    assert after.sites.keys() == {*deployment.sites, "tromso"}
    assert after.streams[stream] == replace(deployment.streams[stream], rate_rows_per_s=77.0)
    assert after.links.between(root, "tromso").delay_s == 0.04
    assert {**after.links.pairs, **deployment.links.pairs} == after.links.pairs
    assert after.objective == "minimise average(path_latency)"
    assert after.subscriptions == deployment.subscriptions
    back = change(after, {"sites": {"tromso": None, site: {"upload": None}}, "objective": None})
    assert "tromso" not in back.sites
    assert not any("tromso" in ends for ends in back.links.pairs)
    assert back.sites[site].upload_bytes_per_s is None
    assert back.objective is None


def test_a_pair_without_values_of_its_own_is_a_pair_like_any_other(deployment: Deployment) -> None:
    one, other = sorted(deployment.sites)[:2]
    with_delay = change(deployment, {"links": {"pairs": [{"between": [one, other], "delay": "1 s"}]}})
    none = {"between": [other, one], "delay": None, "capacity": None, "max_rows": None, "max_bytes": None}
    assert frozenset((one, other)) not in change(with_delay, {"links": {"pairs": [none]}}).links.pairs


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ({"site": {}}, "'site' of a deployment cannot be changed while it runs (did you mean 'sites'?)"),
        ({"subscriptions": {}}, "'subscriptions' of a deployment cannot be changed"),
        ({"sites": {"oslo": {"uplaod": "1 MB/s"}}}, "unknown key 'uplaod'"),
        ({"sites": {"oslo": {"upload": "fast"}}}, "sites.oslo.upload: 'fast' is not a bandwidth"),
        ({"sites": {"nowhere": None}}, "no site 'nowhere'"),
        ({"sites": 3}, "'sites' is no mapping"),
        ({"links": {"pairs": {}}}, "'links.pairs' is no list"),
        ({"links": {"pairs": [{"delay": "1 s"}]}}, "has no `between`"),
        ({"streams": {"ticks": {"root": "oslp"}}}, "unknown site 'oslp' (did you mean 'oslo'?)"),
        ({"constraints": ["fanout <<< 6"]}, "constraints"),
    ],
)
def test_what_is_wrong_with_a_patch_is_said_as_for_a_file(
    deployment: Deployment, patch: dict[str, Any], said: str
) -> None:
    with pytest.raises(HeadgateError) as error:
        change(deployment, patch)
    assert said in str(error.value)
    assert "the change:" not in str(error.value)
