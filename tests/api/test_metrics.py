"""Metrics: the figures of the status, in a form that Prometheus reads; board and alerts ask only for what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.api.helpers import Api, api_test
from tests.client.helpers import rows
from tests.live import small, until

from headgate.api import metrics
from headgate.api.families import estimates
from headgate.service.alerts.book import KINDS

DEPLOY = Path(__file__).parents[2] / "deploy"


def asked() -> set[str]:
    """Every metric that the board and the alert rules name."""
    board = json.loads((DEPLOY / "grafana" / "headgate.json").read_text())
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
    texts = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    texts += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    return {name for text in texts for name in re.findall(r"headgate_\w+", text)}


@pytest.mark.nats
def test_metrics_agree_with_the_status(tmp_path: Path, nats_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    document = small(all={"site": "leaf", "quality": {"at_least": 0.5}}, fast={"site": "mid", "where": "speed > 15"})
    document["links"] = {"pairs": [{"between": ["root", "mid"], "capacity": "1 Mbit/s"}]}

    async def work(api: Api) -> None:
        await api.live.commit("fleet", rows(0, 300), 0)
        api.live.readers.start(["all", "fast"])
        status = await api.live.settle()

        async def caught_up() -> Any:
            answer = await api.http.get("/metrics")  # as it was a moment ago
            whole = 'headgate_rows_delivered_total{site="leaf",stream="fleet"} 300.0' in answer.text
            whole = whole and 'headgate_process_memory_bytes{process="service"}' in answer.text
            return answer if whole and 'headgate_link_bytes_total{from="root",to="mid"}' in answer.text else None

        answer = await until(caught_up)
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        found: dict[str, dict[tuple[str, ...], float]] = {}
        declared = set()
        for family in text_string_to_metric_families(answer.text):
            suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(family.type, [""])
            declared |= {family.name + suffix for suffix in suffixes}
            for sample in family.samples:
                found.setdefault(sample.name, {})[tuple(value for _, value in sorted(sample.labels.items()))] = (
                    sample.value
                )
        assert asked() <= declared, asked() - declared
        assert found["headgate_stream_rows_in_total"]["fleet",] == 300
        fast = status["subscriptions"]["fast"]
        assert 0 < fast["delivered"] < 300
        assert found["headgate_subscription_rows_delivered_total"]["mid", "fleet", "fast"] == fast["delivered"]
        assert found["headgate_rows_delivered_total"]["leaf", "fleet"] == 300
        assert found["headgate_contracts"][()] == 1
        counts = found["headgate_commit_delay_seconds_bucket"]
        assert counts["+Inf", "leaf", "fleet"] == found["headgate_commit_delay_seconds_count"]["leaf", "fleet"] == 300
        buckets = [value for (_, site, _), value in counts.items() if site == "leaf"]
        assert len(buckets) == 15
        assert sorted(buckets) == buckets
        assert found["headgate_link_bytes_total"]["root", "mid"] > 0
        links = (await api.json("GET", "/api/status"))["links"]
        assert found["headgate_link_declared_bytes_per_second"]["root", "mid"] == 125_000
        assert found["headgate_link_budget_bytes_per_second"]["root", "mid"] == links["root->mid"]["budget_bytes_per_s"]
        assert set(found["headgate_link_used_bytes_per_second"]) == {("root", "mid"), ("mid", "leaf")}
        said = {tuple(name.split("->")): float(each["off"] is not None) for name, each in links.items()}
        assert found["headgate_link_misdeclared"] == said
        assert "headgate_link_round_trip_seconds" not in found  # both ends are one server
        assert found["headgate_jitter_seconds_count"]["leaf", "fleet"] == 299
        assert found["headgate_contracts_kept_by_site"]["leaf", "fleet"] == 1
        assert found["headgate_process_memory_bytes"]["service",] > 1 << 20
        assert found["headgate_process_cpu_seconds_total"]["service",] > 0
        assert set(found["headgate_alerts"]) == {(kind,) for kind in KINDS}
        estimate = {"estimate": 3.0, "low": 1.0, "high": 5.0}
        lossy = {"fleet": {"errors": {"false_negatives": estimate, "false_positives": estimate}}, "idle": {}}
        missed, own, wrong, _ = estimates(lossy, {"gusts": lossy["fleet"], "calm": {}})
        assert [sample.value for sample in missed.samples] == [3.0, 1.0, 5.0]
        assert wrong.name == "headgate_stream_false_positives"
        assert own.name == "headgate_subscription_false_negatives"
        assert [sample.labels["subscription"] for sample in own.samples] == ["gusts"] * 3
        # Past a number of subscriptions only sums are given.
        monkeypatch.setattr(metrics, "MOST", 1)
        text = (await api.http.get("/metrics")).text
        assert "headgate_subscription_rows_delivered_total{" not in text
        assert 'headgate_rows_delivered_total{site="leaf",stream="fleet"} 300.0' in text

    api_test(tmp_path, nats_url, document, work)


def test_the_board_has_a_place_for_every_panel() -> None:
    panels = json.loads((DEPLOY / "grafana" / "headgate.json").read_text())["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels) == len({panel["id"] for panel in panels})
    assert all(panel["targets"] for panel in panels)
