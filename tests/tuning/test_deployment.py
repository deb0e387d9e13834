"""Tuning a deployment's plan: all trees together, implicit limits, measured figures, and the command."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from headgate.catalog import DeploymentError, parse_deployment
from headgate.cli.groups import Program
from headgate.cli.tune import plan_text, tune
from headgate.model import Plan, Tree
from headgate.planning import Graph, plan_deployment
from headgate.tuning.compile import compile_objective
from headgate.tuning.constraints import compile_constraint
from headgate.tuning.deployment import tune_deployment
from headgate.tuning.language.vocabulary import BUILT_IN
from headgate.tuning.measured import MeasurementError, from_status, read_measured
from headgate.tuning.scene import BYTES, MeasuredScene, Scene
from headgate.tuning.search import Options
from headgate.tuning.sources import sources_of

TEXT = """
streams:
  wind: {root: oslo, rate: 500/s, schema: {station: string, speed: double}, source: {format: json, path: /in}}
  prices: {root: paris, rate: 50/s, schema: {symbol: string, price: double}, source: {format: json, path: /in}}
sites:
  oslo: {upload: 2 Mbit/s}
  paris: {upload: 4 Mbit/s}
  lyon: {upload: 1 Mbit/s}
  nice: {upload: 1 Mbit/s}
  bonn: {upload: 1 Mbit/s}
  gent: {upload: 3 Mbit/s}
links:
  default_delay: 20 ms
  pairs:
    - {between: [oslo, paris], delay: 35 ms, capacity: 10 Mbit/s}
    - {between: [oslo, lyon], delay: 50 ms}
    - {between: [lyon, paris], delay: 5 ms}
    - {between: [nice, lyon], delay: 5 ms}
subscriptions:
  s1: {site: paris, stream: wind}
  s2: {site: lyon, stream: wind, where: "speed > 10"}
  s3: {site: nice, stream: wind, select: [speed]}
  s4: {site: bonn, stream: wind}
  s5: {site: gent, stream: wind, quality: {delay: 1 s, drop: 0.2, at_least: 0.5}}
  p1: {site: oslo, stream: prices}
  p2: {site: lyon, stream: prices}
  p3: {site: nice, stream: prices}
  p4: {site: bonn, stream: prices}
objective: minimise average(path_latency) over clients
constraints: ["fanout <= 4"]
"""
CHAIN = Plan(
    {
        "wind": Tree(
            "wind", "oslo", {"gent": "oslo", "bonn": "gent", "paris": "bonn", "lyon": "paris", "nice": "lyon"}
        ),
        "prices": Tree("prices", "paris", {"lyon": "paris", "nice": "lyon", "bonn": "nice", "oslo": "bonn"}),
    }
)


@pytest.fixture(scope="module")
def deployment():
    return parse_deployment(TEXT, "headgate.yaml")


def test_a_chain_is_improved_within_all_limits(deployment):
    result = tune_deployment(deployment, plan=CHAIN)
    assert result.settled
    assert result.cost < result.cost_before
    assert {text: now for text, (_, now) in result.violations.items()} == dict.fromkeys(result.violations, 0.0)
    assert set(result.violations) == {
        "upload_excess <= 0",
        "download_excess <= 0",
        "granted_shortfall <= 0",
        "fanout <= 4",
    }
    assert {stream for stream, tree in result.plan.trees.items() if tree != CHAIN.trees[stream]} == {"wind", "prices"}
    assert plan_deployment(type(deployment)(**{**_fields(deployment), "plan": result.plan})).overloads == ()


def _fields(deployment):
    return {name: getattr(deployment, name) for name in deployment.__dataclass_fields__}


def test_every_step_keeps_its_promise_over_all_trees(deployment):
    scene = Scene(plan_deployment(deployment).problem)
    for text in (
        "minimise max(path_latency) over clients",
        "minimise std(outgoing_rate)",
        "minimise sum(fanout * fanout)",
    ):
        compiled = compile_objective(text)
        result = tune_deployment(deployment, plan=CHAIN, objective=text)
        shapes = scene.shapes(CHAIN)
        cost = result.cost_before
        for step in result.steps:
            shapes = {**shapes, step.stream: shapes[step.stream].moved(step.candidate.moves)}
            after = scene.cost(compiled, shapes)
            assert compiled.better(cost, after) == pytest.approx(step.benefit, rel=1e-9)
            cost = after
        assert scene.plan(shapes) == result.plan


def test_a_site_counts_all_its_trees(deployment):
    scene = Scene(plan_deployment(deployment).problem)
    shapes = scene.shapes(CHAIN)
    view = scene.views(shapes, frozenset({"fanout"}))[0]
    nice, lyon = scene.numbers["nice"], scene.numbers["lyon"]
    assert view.metric("fanout")[nice] == 0 + 1
    assert view.metric("fanout")[lyon] == 1 + 1
    rates = [one.metric("incoming_rate") for one in scene.views(shapes, frozenset())]
    outgoing = scene.views(shapes, frozenset({"outgoing_rate"}))[0].metric("outgoing_rate")
    assert outgoing[lyon] == pytest.approx(rates[0][nice] + rates[1][nice])


def test_rates_and_quality_are_the_planners(deployment):
    planned = plan_deployment(deployment)
    scene = Scene(planned.problem)
    shapes = scene.shapes(planned.plan)
    total = sum(
        view.metric("incoming_rate")[np.flatnonzero(view.parents >= 0)].sum()
        for view in scene.views(shapes, frozenset())
    )
    assert total == pytest.approx(planned.metrics.total_bandwidth_bytes_per_s)
    quality = compile_objective("maximise average(attained_quality) over clients")
    assert scene.cost(quality, shapes) == pytest.approx(planned.metrics.arithmetic_mean)
    assert Graph.of(planned.problem, scene.plan(shapes)).settled


def test_a_star_cannot_overload_its_root(deployment):
    """Everything below the root would be fastest; the root's upload does not carry it."""
    narrow = parse_deployment(TEXT.replace("oslo: {upload: 2 Mbit/s}", "oslo: {upload: 250 kbit/s}"), "x.yaml")
    result = tune_deployment(narrow, plan=CHAIN, constraints=())
    limit = compile_constraint("upload_excess <= 0")
    scene = Scene(plan_deployment(narrow).problem)
    assert limit.violation(scene.cost(limit.compiled, scene.shapes(result.plan))) == 0
    assert len(result.plan.trees["wind"].children("oslo")) < 5


def test_measured_links_change_the_plan(deployment):
    slow = MeasuredScene({"link_latency": {("oslo", "gent"): 0.5}})
    result = tune_deployment(deployment, plan=CHAIN, measured=slow)
    assert result.plan.trees["wind"].parents["gent"] != "oslo"


def test_measured_loss_counts_where_it_was_measured(deployment):
    """On its own link and direction; what a site gives up, it would give up on links that nobody uses yet."""
    measured, _ = read_measured(
        {
            "links": [{"from": "oslo", "to": "gent", "loss": 0.4}],
            "sites": {"oslo": {"loss_rate": 0.3}, "paris": {"loss_rate": 0.0}},
        },
        deployment.sites,
    )
    scene = Scene(plan_deployment(deployment).problem, measured)
    numbers, loss = scene.numbers, scene.links["link_loss"]
    assert loss.between(numbers["gent"], numbers["oslo"]) == 0.4
    assert loss.between(numbers["oslo"], numbers["gent"]) == 0.0
    assert loss.between(numbers["bonn"], numbers["oslo"]) == 0.3
    result = tune_deployment(
        deployment, plan=CHAIN, objective="minimise max(path_loss) over clients", constraints=(), measured=measured
    )
    assert (result.cost_before, result.cost) == (pytest.approx(0.4), pytest.approx(0.3))
    assert result.sources["link_loss"] == "measured on 1 link; others what their sender gives up elsewhere"
    assert result.sources["upload_excess"] == "rates: declared or assumed (wind, prices); bandwidth: declared"


def test_every_metric_says_where_it_comes_from(deployment):
    nothing = sources_of(BUILT_IN.link_metrics | BUILT_IN.node_metrics, MeasuredScene(), ["wind", "prices"])
    assert not [text for text in nothing.values() if text.startswith("measured")]
    measured = MeasuredScene(
        {"link_latency": {("oslo", "gent"): 0.02}},
        {"link_loss": {("oslo", "gent"): 0.1, ("gent", "oslo"): 0.2}},
        {"upload_bandwidth": {"lyon": 1e5}, "relay_cpu": dict.fromkeys(deployment.sites, 0.001)},
        {"wind": BYTES},
    )
    found = sources_of(nothing, measured, ["wind", "prices"])
    assert found["link_latency"] == "measured on 1 link; others declared"
    assert found["link_loss"] == "measured on 1 link; others 0"
    assert found["incoming_rate"] == f"{BYTES} (wind); declared or assumed (prices)"
    assert found["upload_bandwidth"] == "measured at lyon; elsewhere declared"
    assert found["relay_cpu"] == "measured at 6 sites; elsewhere 0"
    assert found["loss_rate"] == "not measured: 0"
    assert found["fanout"] == "from the plan"


def test_measurements_are_checked():
    sites = ["oslo", "paris"]
    measured, sizes = read_measured(
        {
            "links": [{"between": ["oslo", "paris"], "latency_s": 0.1}],
            "sites": {"oslo": {"relay_cpu": 0.01}},
            "sizes": {"row_bytes": {"wind": 50}},
        },
        sites,
    )
    assert measured.links == {"link_latency": {("oslo", "paris"): 0.1}}
    assert measured.sites == {"relay_cpu": {"oslo": 0.01}}
    assert sizes.row_bytes == {"wind": 50}
    for document, message in (
        ({"link": []}, "did you mean 'links'"),
        ({"links": [{"between": ["olso", "paris"]}]}, "did you mean 'oslo'"),
        ({"links": [{"between": ["oslo"]}]}, "two sites"),
        ({"links": [{"between": sites, "latency_s": -1}]}, "at least 0"),
        ({"sites": {"oslo": {"relay_cp": 1}}}, "did you mean 'relay_cpu'"),
    ):
        with pytest.raises(MeasurementError, match=message):
            read_measured(document, sites)


def test_goals_in_the_file_are_checked_at_their_place():
    broken = TEXT.replace("average(path_latency)", "average(path_latencie)").replace("fanout <= 4", "fanot <= 4")
    with pytest.raises(DeploymentError) as caught:
        parse_deployment(broken, "headgate.yaml")
    text = str(caught.value)
    assert "did you mean 'path_latency'" in text
    assert "did you mean 'fanout'" in text
    assert "constraints" in text


def test_the_command(tmp_path):

    app = Program()
    app.command()(tune)
    file, out, figures = tmp_path / "headgate.yaml", tmp_path / "plan.yaml", tmp_path / "measured.json"
    file.write_text(TEXT + plan_text(CHAIN))
    figures.write_text(json.dumps({"sites": {"oslo": {"relay_cpu": 0.001}}}))
    runner = CliRunner()
    shown = runner.invoke(app, [str(file), "--steps", "--out", str(out)])
    assert shown.exit_code == 0, shown.output
    assert "child promotion" in shown.output
    assert "connects to" in shown.output
    assert "nothing more helps" in shown.output
    assert out.read_text().startswith("plan:\n  wind: {")
    found = runner.invoke(
        app, [str(file), "--json", "--measured", str(figures), "--watch", "--looks", "1", "--levels", "4"]
    )
    assert found.exit_code == 0, found.output
    assert json.loads(found.output)["cost"] <= json.loads(found.output)["cost_before"]
    assert Options().levels == 3


def test_measurements_of_a_running_deployment():
    def link(latency_s, owed=0, reduced=0):
        return {"latency_s": latency_s, "owed": owed, "reduced": reduced}

    def status(time_ms, rows, matched, blocks, cpu_s, given_up=0):
        return {
            "time_ms": time_ms,
            "streams": {"wind": {"rows_in": rows, "evaluated": rows}, "idle": {"rows_in": 5, "evaluated": 5}},
            "sites": {"paris": {"blocks": blocks, "cpu_s": cpu_s}, "oslo": {"blocks": 7, "cpu_s": 0.5}},
            "links": {
                "oslo->paris": link(0.034, rows, given_up),
                "paris->gent": link(0.012, 30),
                "gent->paris": link(0.013),
                "oslo->nice": link(None, 2 * rows, 3 * given_up),
            },
            "subscriptions": {
                "s1": {"stream": "wind", "site": "paris", "matched": matched},
                "(ended 4)": {"stream": "wind", "site": None, "matched": 9},
                "s9": {"stream": "idle", "site": "paris", "matched": 1},
            },
        }

    first, second = status(1000, 100, 10, 50, 1.0), status(3000, 500, 110, 150, 1.5, given_up=100)
    found = from_status(first, second, lambda one, other: 0.03 if "oslo" in (one, other) else 0.01)
    assert found["sizes"] == {"rate_rows_per_s": {"wind": 200.0}, "selectivity": {"s1": 0.25}}
    # 100 of 400 rows and 300 of 800 were given up; where nothing was owed meanwhile nothing is known.
    assert found["sites"] == {"paris": {"relay_cpu": pytest.approx(0.005)}, "oslo": {"loss_rate": 400 / 1200}}
    # What all links have above their declared delay (2 ms) is taken off.
    assert found["links"] == [
        {"between": ["gent", "paris"], "latency_s": pytest.approx(0.010)},
        {"between": ["oslo", "paris"], "latency_s": pytest.approx(0.032)},
        {"from": "oslo", "to": "nice", "loss": 0.375},
        {"from": "oslo", "to": "paris", "loss": 0.25},
    ]
    measured, sizes = read_measured(found, ["paris", "oslo", "gent", "nice"])
    assert measured.directed == {"link_loss": {("oslo", "nice"): 0.375, ("oslo", "paris"): 0.25}}
    assert sizes.rate_rows_per_s == {"wind": 200.0}
    assert set(measured.links["link_latency"]) == {("gent", "paris"), ("oslo", "paris")}
    restarted = from_status(first, status(3000, 500, 110, 10, 0.1))
    assert restarted["sites"] == {"paris": {"relay_cpu": pytest.approx(0.01)}, "oslo": {"loss_rate": 0.0}}
    afresh = from_status(second, status(5000, 60, 110, 150, 1.5, given_up=30))
    assert afresh["sites"]["oslo"] == {"loss_rate": 120 / 180}
    assert from_status(first, first)["sizes"]["rate_rows_per_s"] == {}
