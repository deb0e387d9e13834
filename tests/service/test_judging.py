"""A plan in force judged by what was measured: caution, moves and what is told of them."""

import pytest

from headgate.catalog import Catalog, parse_deployment
from headgate.model import Plan, Tree
from headgate.planning.measured import Bandwidth, Figures, Measured, Observed
from headgate.service.extending import extend_plan
from headgate.service.replanning import judge

SITES = "abcdefgh"
FILE = f"""
sites:
  root: {{upload: 300 kbit/s}}
{"".join(f"  {name}:{chr(10)}" for name in SITES)}
links: {{default_delay: 5 ms}}
streams:
  wind: {{root: root, schema: {{station: string, speed: double}}, rate: 2/s, source: {{format: json}}}}
subscriptions:
{"".join(f"  at-{name}: {{stream: wind, site: {name}, quality: {{drop: 0.1}}}}{chr(10)}" for name in SITES)}
"""


@pytest.fixture
def snapshot():
    with Catalog.open("sqlite://") as catalog:
        catalog.apply(parse_deployment(FILE, "headgate.yaml"))
        yield catalog.snapshot()


def measured(snapshot, uploads=None):
    """A thousand rows a second of ten bytes that everybody wants: 10 kB/s a copy, 37.5 kB/s of upload at the root."""
    everything = frozenset(snapshot.class_ids.values())
    wind = Observed(1000.0, {everything: 1.0}, {"station": 3.0, "speed": 6.0}, 1.0)
    return Measured({"wind": wind}, {site: Bandwidth(upload) for site, upload in (uploads or {}).items()})


def test_as_few_members_move_as_the_gain_is_worth(snapshot):
    star = Plan({"wind": Tree("wind", "root", dict.fromkeys(SITES, "root"))})
    seen = measured(snapshot, dict.fromkeys(SITES, 50_000.0))
    outlook = judge(snapshot, star, seen)
    # Of four copies the root loses 6 %, which everybody tolerates: four of eight must go, and nobody else has a reason.
    assert outlook.now.metrics.geometric_mean < 0.2
    assert outlook.best.metrics.geometric_mean == pytest.approx(1.0)
    assert outlook.best.moves == 4
    assert outlook.gain_per_move == pytest.approx(outlook.gain / 4)
    again = judge(snapshot, star, seen, 1, candidate=outlook.best.plan)
    assert (again.best.moves, again.gain) == (4, pytest.approx(outlook.gain))
    kept = judge(snapshot, outlook.best.plan, seen, 2, candidate=star, anew=True)
    assert (kept.best.plan, kept.best.moves, kept.gain_per_move) == (outlook.best.plan, 0, 0.0)


def test_an_upload_that_nobody_knows_is_not_trusted_with_everything(snapshot):
    star = Plan({"wind": Tree("wind", "root", dict.fromkeys(SITES, "root"))})
    outlook = judge(snapshot, star, measured(snapshot), anew=True)
    tree = outlook.best.plan.trees["wind"]
    # The root sends 37.5 kB/s. Nobody else has shown anything and is taken for as much: four copies, not seven.
    assert max(list(tree.parents.values()).count(site) for site in SITES) <= 4
    assert outlook.best.metrics.geometric_mean == pytest.approx(1.0)


def test_a_relay_of_the_plan_in_force_stays_as_long_as_it_is_worth_it():
    with Catalog.open("sqlite://") as catalog:
        catalog.apply(parse_deployment(FILE, "headgate.yaml"))
        catalog.unsubscribe("at-a")
        parents = {**dict.fromkeys("abc", "root"), **dict.fromkeys("def", "a"), **dict.fromkeys("gh", "b")}
        plan = Plan({"wind": Tree("wind", "root", parents)})
        snapshot = catalog.snapshot()
        outlook = judge(snapshot, plan, measured(snapshot, dict.fromkeys(SITES, 50_000.0)))
    assert outlook.best.plan == plan
    assert outlook.best.moves == 0


def test_who_joins_is_placed_by_what_was_measured():
    with Catalog.open("sqlite://") as catalog:
        catalog.apply(parse_deployment(FILE, "headgate.yaml"))
        catalog.unsubscribe("at-h")
        parents = {**dict.fromkeys("abcd", "root"), **dict.fromkeys("efg", "a")}
        catalog.set_plan(Plan({"wind": Tree("wind", "root", parents)}))
        seen = measured(catalog.snapshot(), {"a": 35_000.0, "b": 90_000.0})
        figures = Figures.of(seen)
        catalog.subscribe(parse_deployment(FILE, "headgate.yaml").subscriptions["at-h"])
        told, learned = extend_plan(catalog.snapshot()), extend_plan(catalog.snapshot(), None, figures)
    assert told is not None
    assert learned is not None
    # By the file two rows a second fit anywhere, best below the root. Measured, the root and a have no room left.
    assert told.trees["wind"].parents["h"] == "root"
    assert learned.trees["wind"].parents["h"] not in ("root", "a")
    assert {site: each for site, each in learned.trees["wind"].parents.items() if site != "h"} == parents
