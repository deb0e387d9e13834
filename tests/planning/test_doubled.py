"""Second paths of subscriptions: which there are, what they cost, and what they leave for others."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from headgate.catalog import DeploymentError, parse_deployment
from headgate.model import Deployment
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate.planning import plan_deployment
from headgate.planning.deployment import problem_of, whole_problem
from headgate.service.describing import subscription_document
from headgate.service.proposing import propose, result_document


def chain(paths: int = 2, **more: Any) -> Deployment:
    """A stream of 100 rows a second of 8 + 8 bytes from a by b and c to d."""
    document = {
        "sites": {name: {"upload": "40 kbit/s", "download": "40 kbit/s"} for name in "abcd"},
        "streams": {"t": {"root": "a", "source": {"format": "nats"}, "schema": {"v": "double"}, "rate": "100/s"}},
        "subscriptions": {name: {"stream": "t", "site": name} for name in "bc"}
        | {"d": {"stream": "t", "site": "d", "paths": paths}},
        "plan": {"t": {"b": "a", "c": "b", "d": "c"}},
        **more,
    }
    return parse_deployment(yaml.safe_dump(document), "test.yaml", GENERATOR_SCHEMAS)


def test_a_second_path_costs_what_the_first_does_and_leaves_less_for_others():
    result = plan_deployment(chain())
    (found,) = result.doubled
    assert (found.path.second, found.path.shared, found.bytes_per_s) == (("a", "d"), (), 1600.0)
    sites = {site.name: (site.upload_bytes_per_s, site.download_bytes_per_s) for site in result.problem.sites}
    assert sites == {"a": (3400.0, 5000.0), "b": (5000.0, 5000.0), "c": (5000.0, 5000.0), "d": (5000.0, 3400.0)}
    assert "second path: t to d by a -> d, 1,600 bytes/s more" in result.explanation
    assert problem_of(chain()).sites == result.problem.sites, "re-planning has what the plan in force leaves"
    assert result_document(result)["second_paths"][0]["second"] == ["a", "d"]


def test_nothing_is_taken_off_where_nobody_asks_for_two_paths():
    given = chain(paths=1)
    assert plan_deployment(given).doubled == ()
    assert problem_of(given).sites == whole_problem(given).sites
    assert "second_paths" in result_document(plan_deployment(given))


def test_a_second_path_that_there_is_no_upload_for_is_an_overload():
    narrow = {name: {"upload": "20 kbit/s" if name == "a" else "unknown", "download": "unknown"} for name in "abcd"}
    assert not plan_deployment(chain(paths=1, sites=narrow)).overloads
    result = plan_deployment(chain(sites=narrow))
    assert [each.where for each in result.overloads] == ["upload of a"]
    assert result.subscriptions["b"].drop > 0


def test_links_that_exist_decide_what_the_paths_share():
    pairs = [{"between": pair, "delay": "1 ms"} for pair in (["a", "b"], ["b", "c"], ["c", "d"], ["b", "d"])]
    result = plan_deployment(chain(links={"only": "listed", "pairs": pairs}))
    (found,) = result.doubled
    assert (found.path.second, found.path.shared) == (("a", "b", "d"), ("b",))
    assert "which shares b with the first" in result.explanation


def test_a_site_that_the_root_serves_has_one_path_and_is_told_so():
    result = propose(chain(plan={"t": {"b": "a", "c": "a", "d": "a"}}), "qasdg", "quality", 0, None)
    assert result.doubled == ()
    assert "one path: t to d" in result.explanation


def test_the_number_of_paths_is_kept_and_no_other_is_taken():
    assert subscription_document(chain().subscriptions["d"])["paths"] == 2
    assert "paths" not in subscription_document(chain().subscriptions["c"])
    with pytest.raises(DeploymentError, match="paths"):
        chain(paths=3)
