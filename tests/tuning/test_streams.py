"""Several stream trees over the same sites, by messages alone: one objective, and bounds that count all of a site."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tuning.test_deployment import CHAIN, TEXT

from headgate.catalog import parse_deployment
from headgate.planning import plan_deployment
from headgate.tuning.compile import compile_objective
from headgate.tuning.constraints import compile_constraint
from headgate.tuning.deployment import PlanTuner
from headgate.tuning.evaluate import TreeView, evaluate, together
from headgate.tuning.language import ObjectiveError
from headgate.tuning.protocol import StreamSimulation, TuningSettings
from headgate.tuning.protocol.simulation import setting_of
from headgate.tuning.protocol.streams import IMPLICIT
from headgate.tuning.scene import Scene
from headgate.tuning.search import Options
from headgate_studies.workloads.tuning import stream_trees


def _simulation(overlays, text, limits=IMPLICIT, **options):
    loss, seed = options.pop("loss", 0.0), options.pop("seed", 0)
    compiled = tuple(compile_constraint(limit) for limit in limits)
    settings = TuningSettings(compile_objective(text), setting_of(overlays[0]), limits=compiled, **options)
    return StreamSimulation(overlays, settings, loss=loss, seed=seed)


def _kept(before, after):
    return all(now <= was + 1e-9 * max(1.0, was) for was, now in zip(before, after, strict=True))


@pytest.mark.parametrize(
    "text",
    [
        "minimise sum(path_latency)",
        "minimise average(path_latency) over clients",
        "minimise max(path_latency)",
        "minimise std(path_latency) over brokers-clients",
        "minimise sum(superfluous_data)",
        "minimise sum(delay) where delay = sum(link_latency + matching_cpu) over path",
        "minimise average(load) over clients where load = sum(matching_cpu + outgoing_rate / 1 GB/s) over path",
        "minimise average(fanout + outgoing_rate / 1 MB/s) over brokers-clients",
    ],
)
def test_what_is_proposed_holds_over_all_trees(text):
    """Every proposal of a settled system promises what re-evaluating all trees finds, and worsens no bound on them."""
    overlays, shapes = stream_trees(np.random.default_rng(1), 9, 3)
    simulation = _simulation(overlays, text, (*IMPLICIT, "fanout <= 5", "matching_cpu <= 12 ms"), seed=1)
    simulation.start(shapes)
    simulation.run(239 - simulation.network.now)
    simulation.run(30)
    before, missed = simulation.cost(), simulation.missed()
    assert any(missed)
    assert simulation.known_cost() == pytest.approx(before, rel=1e-9)
    proposals = simulation.trees[0].sites[simulation.roots[0]].proposals
    assert proposals
    for proposal in proposals:
        shapes = simulation.shapes()
        shapes[proposal.stream] = shapes[proposal.stream].moved(proposal.moves)
        views = together([TreeView(*each) for each in zip(overlays, shapes, strict=True)])
        after = evaluate(simulation.settings.objective, views)
        benefit = simulation.settings.objective.better(before, after)
        assert proposal.after == pytest.approx(after, rel=1e-9, abs=1e-9)
        assert proposal.benefit == pytest.approx(benefit, rel=1e-9, abs=1e-9)
        assert _kept(missed, [limit.of(views) for limit in simulation.settings.limits])


@pytest.mark.long
@pytest.mark.slow
def test_no_step_breaks_a_bound_that_counts_all_trees():
    overlays, shapes = stream_trees(np.random.default_rng(0), 10, 3)
    simulation = _simulation(overlays, "minimise sum(path_latency)")
    simulation.start(shapes)
    simulation.run(110 - simulation.network.now)
    first, missed = simulation.cost(), simulation.missed()
    assert missed[0] > 0
    for _ in range(20):
        simulation.run(120)
        now = simulation.missed()
        assert _kept(missed, now)
        missed = now
    assert missed == [0.0, 0.0, 0.0]
    assert simulation.connected()
    assert simulation.cost() < first
    assert {proposal.stream for _, proposal in simulation.applied()} == {0, 1, 2}


def test_a_plan_is_tuned_by_messages_as_headgate_tune_tunes_it():
    """The same steps from the same plan; a granted quality, as a bound on delay, is the planner's."""
    deployment = parse_deployment(TEXT.replace("delay: 1 s, drop: 0.2", "delay: 60 ms, drop: 0.2"), "headgate.yaml")
    scene = Scene(plan_deployment(deployment).problem)
    text = "minimise average(path_latency) over clients"
    overlays = [scene.overlays[stream] for stream in scene.streams]
    simulation = _simulation(overlays, text, (*IMPLICIT, "fanout <= 4"))
    start = scene.shapes(CHAIN)
    simulation.start([start[stream] for stream in scene.streams])
    simulation.run(110 - simulation.network.now)
    compiled = compile_objective(text)
    assert simulation.known_cost() == pytest.approx(scene.cost(compiled, start), rel=1e-9)
    limits = tuple(compile_constraint(limit) for limit in ("upload_excess <= 0", "download_excess <= 0", "fanout <= 4"))
    granted = compile_constraint("granted_shortfall <= 0")
    tuner = PlanTuner(scene, compiled, (*limits, granted), Options(periods=40))
    shapes, steps, _, settled = tuner.run(start)
    assert settled
    simulation.run((len(steps) + 3) * 120)
    found = dict(zip(scene.streams, simulation.shapes(), strict=True))
    assert [(scene.streams[each.stream], each.moves) for _, each in simulation.applied()] == [
        (step.stream, step.candidate.moves) for step in steps
    ]
    assert scene.plan(found) == scene.plan(shapes)
    assert scene.cost(compiled, found) == pytest.approx(simulation.known_cost(), rel=1e-9)
    assert tuner.misses(found) == [0.0] * 4


def test_a_crash_heals_in_all_trees_under_loss():
    overlays, shapes = stream_trees(np.random.default_rng(4), 10, 2)
    simulation = _simulation(overlays, "minimise max(path_latency)", loss=0.03, seed=4)
    simulation.start(shapes)
    simulation.run(100)
    inner = next(site for site in shapes[0].order if shapes[0].children[site] and site not in simulation.roots)
    simulation.crash(inner)
    simulation.run(240)
    assert simulation.connected()
    assert all(inner not in tree.sites for tree in simulation.trees)
    assert simulation.hosts[inner].shares == {}


@pytest.mark.parametrize(
    ("text", "limits", "options", "message"),
    [
        ("minimise sum(path_latency)", (), {"concurrent": True}, "same slack"),
        ("minimise max(path_cpu)", (), {}, "matching_cpu"),
        ("minimise sum(fanout * fanout)", (), {}, "fanout"),
        ("minimise sum(path_latency + path_cpu)", (), {}, "matching_cpu"),
        ("minimise sum(upload_excess)", (), {}, "upload_excess"),
        ("minimise sum(path_latency)", ("path_cpu <= 1 s",), {}, "mixes"),
        ("minimise sum(path_latency)", ("sum(fanout) <= 9",), {}, "mixes"),
    ],
)
def test_what_sites_cannot_price_over_trees_is_refused(text, limits, options, message):
    overlays, _ = stream_trees(np.random.default_rng(0), 4, 2)
    with pytest.raises(ObjectiveError, match=message):
        _simulation(overlays, text, limits, **options)
    _simulation(overlays[:1], text, limits, **options)
