"""Every plan that comes into force keeps to the objective and the constraints of the deployment file."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.live import running, sites

from headgate.catalog import Catalog, parse_deployment
from headgate.errors import HeadgateError
from headgate.model import Plan, Tree
from headgate.pipeline.sources import generate
from headgate.planning.measured import Figures, Measured, Observed
from headgate.relay.output import QueueLimits
from headgate.service.extending import Extender, extend_plan, missed_constraints
from headgate.service.replanning import Rules, judge
from headgate.tuning.terms import ConstraintError

FILE = """
sites: {root: , a: , b: , c: }
links: {default_delay: 20 ms}
streams:
  wind: {root: root, schema: {station: string, speed: double}, rate: 2/s, source: {format: json}}
subscriptions:
  at-a: {stream: wind, site: a}
  at-b: {stream: wind, site: b}
"""


def _tree(**parents: str) -> Plan:
    return Plan({"wind": Tree("wind", "root", parents)})


def _snapshot(constraints: str, plan: Plan, more: str = "") -> Any:
    with Catalog.open("sqlite://") as catalog:
        catalog.apply(parse_deployment(f"{FILE}{more}\nconstraints: [{constraints}]\n", "headgate.yaml"))
        catalog.set_plan(plan)
        return catalog.snapshot()


def test_who_joins_gets_a_parent_within_the_constraints_and_others_move_only_where_they_must() -> None:
    more = "  at-c: {stream: wind, site: c}\n"
    extended = extend_plan(_snapshot("'fanout <= 2'", _tree(a="root", b="root"), more))
    assert extended is not None
    assert extended.trees["wind"].parents["c"] in ("a", "b")
    assert {**extended.trees["wind"].parents, "c": "-"} == {"a": "root", "b": "root", "c": "-"}
    moved = extend_plan(_snapshot("'fanout <= 1'", _tree(a="root", b="root"), more))
    assert moved is not None
    parents = list(moved.trees["wind"].parents.values())
    assert sorted(moved.trees["wind"].parents) == ["a", "b", "c"]
    assert len(set(parents)) == 3


def test_a_subscription_that_nobody_can_serve_within_the_constraints_is_refused() -> None:
    snapshot = _snapshot("'hops <= 1', 'fanout <= 2'", _tree(a="root", b="root"))
    wanted = replace(snapshot.deployment.subscriptions["at-a"], name="at-c", site="c")
    with pytest.raises(ConstraintError, match=r"'at-c' cannot be served .* `(fanout <= 2|hops <= 1)` is missed"):
        Extender().check(snapshot, [wanted], Figures())
    Extender().check(snapshot, [replace(wanted, site="b")], Figures())
    missed = _snapshot("'hops <= 1', 'fanout <= 1'", _tree(a="root", b="root"))
    Extender().check(missed, [replace(wanted, site="b")], Figures())  # missed already, and no more than before


def test_a_restart_with_a_plan_that_misses_a_constraint_by_now_is_told() -> None:
    snapshot = _snapshot("'fanout <= 1'", _tree(a="root", b="root"))
    assert [str(miss) for miss in missed_constraints(snapshot)] == ["constraint `fanout <= 1` is missed: root has 2"]
    assert missed_constraints(_snapshot("'fanout <= 2'", _tree(a="root", b="root"))) == ()


def _measured(snapshot: Any) -> Measured:
    everything = frozenset(snapshot.class_ids.values())
    return Measured({"wind": Observed(1000.0, {everything: 1.0}, {"station": 3.0, "speed": 6.0}, 1.0)})


def test_replanning_brings_a_plan_within_the_constraints_by_what_was_measured() -> None:
    # 1,000 rows of ten bytes a second, where 2 rows were declared: two copies are more than the bound.
    snapshot = _snapshot("'outgoing_rate <= 15 kB/s'", _tree(a="root", b="root"))
    outlook = judge(snapshot, snapshot.plan, _measured(snapshot))
    assert outlook.gain == 1.0
    assert outlook.best.moves == 1
    assert "root has 20 kB/s" in str(outlook.misses[0])
    assert sorted(outlook.best.plan.trees["wind"].parents.values()) in (["a", "root"], ["b", "root"])
    kept = judge(snapshot, outlook.best.plan, _measured(snapshot), candidate=snapshot.plan, anew=True)
    assert (kept.gain, kept.misses) == (0.0, ())


def test_replanning_goes_by_the_objective() -> None:
    snapshot = _snapshot("", _tree(a="root", b="a"))
    by_quality = judge(snapshot, snapshot.plan, _measured(snapshot))
    assert by_quality.gain == 0.0  # a quality of 1 with either plan
    asked = replace(snapshot, deployment=replace(snapshot.deployment, objective="minimise average(path_latency)"))
    outlook = judge(asked, asked.plan, _measured(asked))
    assert outlook.best.plan == _tree(a="root", b="root")
    assert outlook.gain == pytest.approx(1 / 3)


def _document(**more: Any) -> dict[str, Any]:
    return {
        "sites": sites("root", "a", "b", "c"),
        "links": {"default_delay": "1 ms"},
        "streams": {"fleet": {"root": "root", "source": {"format": "generator", "kind": "fleet"}, "rate": "2/s"}},
        "subscriptions": {f"at-{name}": {"site": name, "stream": "fleet", "quality": {"drop": 0.1}} for name in "ab"},
        **more,
    }


@pytest.mark.nats
def test_a_deployment_starts_joins_and_replans_within_its_terms(tmp_path: Path, nats_url: str) -> None:
    terms = {"objective": "maximise average(hops) over brokers", "constraints": ["hops <= 2"]}
    rules = Rules(every_s=0.2, confirm=1, rest_s=0.0, window_s=0.2)

    async def run() -> None:
        async with running(_document(**terms), tmp_path, nats_url, replan=rules) as live:
            catalog = live.runtime.catalog
            first = catalog.snapshot().plan
            assert first is not None
            assert sorted(first.trees["fleet"].parents.values()) in (["a", "root"], ["b", "root"])
            await live.client.control("subscribe", name="at-c", subscription={"site": "c", "stream": "fleet"})
            joined = catalog.snapshot().plan
            assert joined is not None
            assert _depth(joined) <= 2
            catalog.set_plan(Plan({"fleet": Tree("fleet", "root", dict.fromkeys("abc", "root"))}))
            await live.runtime.control.publish()
            batch = 0
            while not (await live.runtime.status())["planner"].get("changes", 0):
                await live.commit("fleet", generate("fleet", 3, 50 * batch, 50 * (batch + 1)), batch)
                batch += 1
            better = catalog.snapshot().plan
            assert better is not None
            assert _depth(better) == 2
            report = (await live.runtime.status())["planner"]
            assert report["objective"] == terms["objective"]
            assert report["constraints_missed"] == []

    asyncio.run(run())


def _depth(plan: Plan) -> int:
    tree = plan.trees["fleet"]
    depths = {tree.root: 0}
    for site in tree.members[1:]:
        depths[site] = depths[tree.parents[site]] + 1
    return max(depths.values())


@pytest.mark.nats
@pytest.mark.parametrize(
    "more",
    [
        {"constraints": ["fanout <= 1", "hops <= 1"]},
        {"constraints": ["fanout <= 1"], "plan": {"fleet": {"a": "root", "b": "root"}}},
    ],
    ids=["planned", "given"],
)
def test_a_deployment_that_cannot_keep_its_constraints_does_not_start(
    tmp_path: Path, nats_url: str, more: dict[str, Any]
) -> None:
    async def run() -> None:
        async with running(_document(**more), tmp_path, nats_url):
            pass

    for _ in range(2):  # a second start with the same file is refused just the same
        with pytest.raises(HeadgateError, match="fanout <= 1"):
            asyncio.run(run())


@pytest.mark.nats
def test_a_join_by_the_protocol_keeps_to_the_constraints(tmp_path: Path, nats_url: str) -> None:
    """The root sheds, but a bound on hops leaves its children no other parent: they stay, and that is told."""
    document = _document(constraints=["hops <= 1"], options={"emulate_upload": {"root": "200 kbit/s"}})
    settings: dict[str, Any] = {
        "limits": QueueLimits(max_rows=300),
        "replan": Rules(every_s=3600.0),
        "settle_s": 0.5,
    }

    async def run() -> None:
        async with running(document, tmp_path, nats_url, **settings) as live:
            live.readers.start(["at-a", "at-b"])
            joiner = live.runtime.joiner
            assert joiner is not None
            batch = 0
            while not joiner.joins:
                await live.commit("fleet", generate("fleet", 3, 200 * batch, 200 * (batch + 1)), batch)
                batch += 1
            (join,) = joiner.joins
            assert (join.before, join.after) == ("root", "root")
            assert join.refused
            plan = live.runtime.catalog.snapshot().plan
            assert plan is not None
            assert set(plan.trees["fleet"].parents.values()) == {"root"}

    asyncio.run(run())
