"""The tuner's units as machines: in the simulated world they find what the virtual-time protocol finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import yaml

from headgate.catalog import parse_deployment
from headgate.model import Plan, Tree
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate.planning import problem_of
from headgate.planning.measured import with_relays_of
from headgate.protocol.tuning import AskCommit, TellCost, UnitLetter
from headgate.protocol.tuning_codec import decode_tuning, encode_tuning
from headgate.relay.link_figures import LinkFigures
from headgate.relay.unit_cores import settings_of
from headgate.service.tuning_history import TuningHistory
from headgate.service.tuning_run import RefusedChangeError, TuningRun, Wishes
from headgate.tuning.protocol.messages import BranchReply, MeasureReply, ReportPart
from headgate.tuning.protocol.streams import StreamSimulation
from headgate.tuning.scene import MeasuredScene, Scene
from headgate.tuning.unit import Facts, Frontier
from headgate.wire.frame import WireError
from headgate_studies.testing.world.tuned import SimulatedTuning

PERIODS = 9
SITES = [f"s{number:02d}" for number in range(8)]
LATENCY = "minimise sum(path_latency)"
REDUNDANT = "minimise sum(superfluous_data)"


def _document(seed: int) -> dict[str, Any]:
    """Eight sites in a plane, a stream from the first, a subscription at each of the others."""
    generator = np.random.default_rng(seed)
    places = generator.uniform(0, 40, (len(SITES), 2))
    pairs = [
        {"between": [one, other], "delay": f"{1 + np.hypot(*(places[i] - places[j])):.1f}ms"}
        for i, one in enumerate(SITES)
        for j, other in enumerate(SITES[:i])
    ]
    wanted = ("speed > 90", "speed < 20", "fuel < 0.2")
    return {
        "sites": {name: {"upload": "100 Mbit/s", "download": "100 Mbit/s"} for name in SITES},
        "links": {"pairs": pairs},
        "streams": {
            "fleet": {"root": SITES[0], "source": {"format": "generator", "kind": "fleet", "seed": 3}, "key": "vehicle"}
        },
        "subscriptions": {
            f"at-{name}": {"stream": "fleet", "site": name, "where": wanted[number % 3]}
            for number, name in enumerate(SITES[1:])
        },
    }


def _start(seed: int) -> Plan:
    generator = np.random.default_rng(seed)
    parents = {SITES[i]: SITES[int(generator.integers(max(0, i - 2), i))] for i in range(1, len(SITES))}
    return Plan({"fleet": Tree("fleet", SITES[0], parents)})


def _run(
    objective: str,
    constraints: tuple[str, ...] = (),
    *,
    seed: int = 1,
    document: dict[str, Any] | None = None,
    **wishes: Any,
) -> tuple[TuningRun, Plan]:
    deployment = parse_deployment(yaml.safe_dump(document or _document(seed)), "test.yaml", GENERATOR_SCHEMAS)
    plan = _start(seed)
    scene = Scene(with_relays_of(problem_of(deployment), plan))
    asked = Wishes(objective, constraints, **{"every_s": 12.0, "measured": MeasuredScene(), **wishes})
    return TuningRun.begin(7, 1.8e9, asked, scene, plan), plan


def _oracle(run: TuningRun, plan: Plan, periods: int) -> list[tuple[str, dict[str, str]]]:
    """The transformations of the protocol in virtual time, from the same start and by the same figures."""
    brief = run.word(SITES[0], 0, plan).brief
    assert brief is not None
    simulation = StreamSimulation([run.scene.overlays["fleet"]], settings_of(brief, brief.trees[0]))
    simulation.start([run.scene.shapes(plan)["fleet"]])
    simulation.run(periods * run.wishes.every_s)
    return [(offer.name, _moves(offer.moves)) for _, offer in simulation.applied()]


def _moves(moves: Any) -> dict[str, str]:
    return {SITES[site]: SITES[parent] for site, parent in sorted(moves)}


@pytest.mark.parametrize("objective", [LATENCY, REDUNDANT])
def test_units_find_the_transformations_of_the_virtual_time_protocol(objective: str) -> None:
    run, plan = _run(objective)
    live = SimulatedTuning(run, plan)
    live.run(PERIODS * run.wishes.every_s)
    found = [(step.transformation, dict(sorted(step.moves.items()))) for step in live.steps]
    assert found == _oracle(run, plan, PERIODS) != []
    assert {step.state for step in live.steps} == {"in force"}
    for step in live.steps:
        assert step.measured == pytest.approx(step.predicted, rel=1e-6, abs=1e-9)
    assert live.home.history.points[-1].cost == pytest.approx(
        run.scene.cost(_compiled(run), run.scene.shapes(live.home.plan))
    )


def _compiled(run: TuningRun) -> Any:
    brief = run.word(SITES[0], 0, _start(1)).brief
    assert brief is not None
    return settings_of(brief, brief.trees[0]).objective


def test_a_constraint_holds_in_every_plan_although_letters_get_lost_and_a_unit_dies() -> None:
    run, plan = _run(LATENCY, ("fanout <= 3",))
    live = SimulatedTuning(run, plan, loss=0.02, seed=5)
    live.run(3 * run.wishes.every_s)
    live.kill("s04")
    live.run(2 * run.wishes.every_s)
    live.start("s04")
    live.run(9 * run.wishes.every_s)
    before, after = (run.scene.cost(_compiled(run), run.scene.shapes(each)) for each in (plan, live.home.plan))
    assert after < 0.8 * before
    assert len(live.home.plans) > 3
    for each in live.home.plans:
        parents = list(each.trees["fleet"].parents.values())
        assert max(map(parents.count, parents)) <= 3
        assert set(each.trees["fleet"].members) == set(SITES)


def test_units_give_no_site_a_parent_that_it_cannot_connect_to() -> None:
    """Only parents and grandparents at the start connect, but none to the root; else the star would come out."""
    start = _start(1).trees["fleet"].parents
    grand = {frozenset((site, start[parent])) for site, parent in start.items() if parent in start}
    listed = {frozenset(edge) for edge in start.items()} | {pair for pair in grand if SITES[0] not in pair}
    document = _document(1)
    document["links"]["pairs"] = [each for each in document["links"]["pairs"] if frozenset(each["between"]) in listed]
    document["links"]["only"] = "listed"
    run, plan = _run(LATENCY, document=document)
    live = SimulatedTuning(run, plan)
    live.run(PERIODS * run.wishes.every_s)
    assert len(live.home.plans) > 1
    for each in live.home.plans:
        assert {frozenset(edge) for edge in each.trees["fleet"].parents.items()} <= listed
    barred = [site for site in SITES[1:] if frozenset((site, SITES[0])) not in listed]
    site = next(site for site in barred if start.get(start[site]) == SITES[0])
    moved = (SITES.index(site), 0, SITES.index(start[site]))
    asked = AskCommit(run.number, 0, 1, "child promotion", (moved,), 1.0, 0.0, 1.0, at_random=False)
    with pytest.raises(RefusedChangeError, match="cannot connect"):
        run.changed(plan, start[site], asked)


def test_units_measure_the_delays_of_links_themselves() -> None:
    """Declared delays are wrong: what counts is how long letters take from a site to another."""
    run, plan = _run(LATENCY, measured=None)
    live = SimulatedTuning(run, plan)
    for number, site in enumerate(SITES):
        for link in live.fabric.network.between(site, "server"):
            link.delay_s = 0.002 + 0.003 * number
    live.run(9 * run.wishes.every_s)
    for site, parent in live.home.plan.trees["fleet"].parents.items():
        one, other = SITES.index(site), SITES.index(parent)
        assert live.units[site].figures.between(LinkFigures.METRIC, other) == pytest.approx(
            0.004 + 0.003 * (one + other), abs=0.002
        )
    assert set(live.home.plan.trees["fleet"].parents.values()) == {"s00"}  # the star: nobody is nearer than the root


def test_home_refuses_what_does_not_fit() -> None:
    run, plan = _run(LATENCY)
    parents = {SITES.index(site): SITES.index(parent) for site, parent in plan.trees["fleet"].parents.items()}
    site = next(site for site in parents if parents.get(parents[site], 0) > 0)
    owner, above = parents[site], parents[parents[site]]

    def ask(*moves: tuple[int, int, int], number: int = run.number) -> AskCommit:
        return AskCommit(number, 0, 1, "child promotion", moves, 1.0, 0.0, 1.0, at_random=False)

    good = ask((site, above, owner))
    assert run.changed(plan, SITES[owner], good).trees["fleet"].parents[SITES[site]] == SITES[above]
    for asker, asked, why in (
        (owner, ask((site, above, owner), number=3), "of run 3"),
        (owner, ask((site, owner, above)), "does not hang below"),
        (owner, ask((site, 99, owner)), "that there are not"),
        (owner, ask((owner, site, above)), "is no tree"),
        (7 if 7 not in (site, owner, above) else 6, good, "not both in the unit"),
    ):
        with pytest.raises(RefusedChangeError, match=why):
            run.changed(plan, SITES[asker], asked)
    run.lock(SITES[owner], good, 0.0)
    with pytest.raises(RefusedChangeError, match="still on its way"):
        run.lock("s01" if owner != 1 else "s02", good, 1.0)
    run.unlock(SITES[owner], good.period)
    run.lock("s01" if owner != 1 else "s02", good, 1.0)


def test_messages_are_the_same_after_their_way_and_nothing_else_is_read() -> None:
    frontier = Frontier(2, {0.0: (3, 0.5), float("inf"): (1, 0.0)}, ((1.0, 2, 0.5, 0.5),), np.array([True, False]), 7.0)
    facts = Facts(1, 2, np.array([False, True]), {"upload_bandwidth": float("inf")})
    part = ReportPart(3, 1, facts, (1, 2), (frontier,), 4)
    letter = UnitLetter(9, "s03", 1, BranchReply(5, (part,)))
    found = decode_tuning(encode_tuning(letter), UnitLetter)
    assert (found.run, found.sender, found.tree, found.message.period) == (9, "s03", 1, 5)
    (read,) = found.message.parts
    assert read.frontiers[0].state == frontier.state
    assert read.facts.constants == facts.constants
    assert read.facts.profile.tolist() == [False, True]
    values = MeasureReply(1, {("link_latency", 4): 0.25})
    assert decode_tuning(encode_tuning(values)) == values
    for data in (b"", b"\xc1", b"\x93\x06\x63\x01", encode_tuning(values)[:-1], encode_tuning([1, 2])):
        with pytest.raises(WireError):
            decode_tuning(data, UnitLetter)


def test_several_trees_are_tuned_together_and_sparing_reports_save_letters() -> None:
    """Two streams with roots of their own over the same sites: one judge, the virtual-time protocol's changes."""
    document = _document(2)
    document["streams"]["back"] = {**document["streams"]["fleet"], "root": SITES[-1]}
    document["subscriptions"] |= {
        f"back-{name}": {"stream": "back", "site": name, "where": "speed > 50"} for name in SITES[1:5]
    }
    deployment = parse_deployment(yaml.safe_dump(document), "test.yaml", GENERATOR_SCHEMAS)
    chain = dict(zip(SITES[1:5], [SITES[-1], *SITES[1:4]], strict=True))
    plan = Plan({**_start(2).trees, "back": Tree("back", SITES[-1], chain)})
    scene = Scene(with_relays_of(problem_of(deployment), plan))
    wishes = Wishes(LATENCY, ("fanout <= 4",), every_s=12.0, measured=MeasuredScene())
    run = TuningRun.begin(7, 1.8e9, wishes, scene, plan)
    live = SimulatedTuning(run, plan)
    live.run(6 * wishes.every_s)

    brief = run.word(SITES[0], 0, plan).brief
    assert brief is not None
    overlays = [scene.overlays[stream] for stream in run.streams]
    oracle = StreamSimulation(overlays, settings_of(brief, brief.trees[0]))
    oracle.start([scene.shapes(plan)[stream] for stream in run.streams])
    oracle.run(6 * wishes.every_s)
    found = [(step.stream, step.transformation, dict(sorted(step.moves.items()))) for step in live.steps]
    assert found == [(run.streams[offer.stream], offer.name, _moves(offer.moves)) for _, offer in oracle.applied()]
    assert {stream for stream, *_ in found} == {"fleet", "back"}
    fans = [parent for tree in live.home.plan.trees.values() for parent in tree.parents.values()]
    assert max(map(fans.count, fans)) <= 4

    sparing = TuningRun.begin(8, 1.8e9, replace(wishes, approximate=1.0), scene, plan)
    saved = SimulatedTuning(sparing, plan)
    saved.run(2 * wishes.every_s)
    reports = [
        sum(unit.counts.by_type.get("SubtreeReport", 0) for unit in each.units.values()) for each in (live, saved)
    ]
    assert 0 < reports[1] / 2 < 0.6 * reports[0] / 6  # in a period


def test_the_history_tells_what_was_predicted_and_what_was_measured_across_runs() -> None:
    run, plan = _run(LATENCY)
    history = TuningHistory(run)

    def tell(period: int, cost: float, sites: int = len(SITES), *, number: int = run.number) -> None:
        history.cost(TellCost(number, period, True, 12.0 * period + 6.0, cost, (), sites), 1_800_000_000_000)

    asked = AskCommit(run.number, 0, 1, "child promotion", ((2, 0, 1),), 0.010, 0.0, 0.040, at_random=False)
    tell(1, 0.050)
    history.changed("s01", asked, 1_800_000_018_500, 2)
    tell(2, 0.030, sites=5)  # somebody has not reported: that is not the cost of all
    assert history.steps[0].measured is None
    tell(3, 0.041)
    (step,) = history.steps
    assert (step.cost_before, step.predicted, step.measured) == (0.050, 0.010, pytest.approx(0.009))
    assert (step.moves, step.revision, step.at_s) == ({"s02": "s00"}, 2, pytest.approx(18.5))
    assert not history.settled
    tell(4, 0.041)
    assert history.settled

    again = TuningRun.begin(8, run.began_s + 60.0, run.wishes, run.scene, plan)
    history = TuningHistory(again, history)
    tell(0, 0.041, number=8)
    assert (len(history.steps), history.points[-1].at_s) == (1, pytest.approx(66.0))
    assert not history.settled
    other, _ = _run(REDUNDANT)
    assert TuningHistory(other, history).steps == []
