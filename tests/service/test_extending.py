"""A site that subscribes while a deployment runs finds a parent, and nobody else moves."""

from dataclasses import replace

from headgate.catalog import Catalog, parse_deployment
from headgate.model import Plan, Tree
from headgate.service.extending import extend_plan

FILE = """
sites:
  oslo: {upload: 12 kbit/s}
  paris: {upload: 10 Mbit/s}
  lyon:
  rome:
links: {default_delay: 5 ms}
streams:
  wind: {root: oslo, schema: {station: string, speed: double}, rate: 50/s, source: {format: json}}
subscriptions:
  one: {stream: wind, site: paris}
  two: {stream: wind, site: lyon}
"""


def test_a_new_site_is_served_by_whom_the_plan_says_and_the_others_stay() -> None:
    deployment = parse_deployment(FILE, "headgate.yaml")
    with Catalog.open("sqlite://") as catalog:
        catalog.apply(deployment)
        assert extend_plan(catalog.snapshot()) == Plan(
            {"wind": Tree("wind", "oslo", {"lyon": "oslo", "paris": "oslo"})}
        )
        catalog.set_plan(Plan({"wind": Tree("wind", "oslo", {"paris": "oslo", "lyon": "paris"})}))
        assert extend_plan(catalog.snapshot()) is None
        more = parse_deployment(FILE + "  three: {stream: wind, site: rome}\n", "headgate.yaml")
        catalog.subscribe(more.subscriptions["three"])
        extended = extend_plan(catalog.snapshot())
        assert extended is not None
        # Oslo's upload is good for one copy of the stream: a second one below oslo would cost both their quality.
        parents = dict(extended.trees["wind"].parents)
        assert parents.pop("rome") in ("paris", "lyon")
        assert parents == {"paris": "oslo", "lyon": "paris"}


def test_a_site_that_only_relays_stays_and_the_new_one_is_placed_with_it_there() -> None:
    with Catalog.open("sqlite://") as catalog:
        catalog.apply(parse_deployment(FILE.replace("  two: {stream: wind, site: lyon}\n", ""), "headgate.yaml"))
        catalog.set_plan(Plan({"wind": Tree("wind", "oslo", {"lyon": "oslo", "paris": "lyon"})}))
        more = parse_deployment(FILE + "  three: {stream: wind, site: rome}\n", "headgate.yaml")
        catalog.subscribe(more.subscriptions["three"])
        extended = extend_plan(catalog.snapshot())
        assert extended is not None
        parents = dict(extended.trees["wind"].parents)
        assert parents.pop("rome") in ("paris", "lyon")
        assert parents == {"lyon": "oslo", "paris": "lyon"}


def test_a_plan_that_cannot_be_read_as_a_graph_gets_the_new_site_below_the_root() -> None:
    with Catalog.open("sqlite://") as catalog:
        catalog.apply(parse_deployment(FILE, "headgate.yaml"))
        snapshot = replace(catalog.snapshot(), plan=Plan({"wind": Tree("wind", "oslo", {"gone": "oslo"})}))
        extended = extend_plan(snapshot)
        assert extended is not None
        assert extended.trees["wind"].parents == {"gone": "oslo", "paris": "oslo", "lyon": "oslo"}
