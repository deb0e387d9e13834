"""Figures of installs by role: closures grow with the role, and an import is timed in a process of its own."""

from __future__ import annotations

import pytest

from headgate_studies.bench.roles import ROLES, closure, import_cost, size_bytes


@pytest.mark.slow
def test_a_larger_role_installs_more() -> None:
    found = {role: closure(requirement) for role, (requirement, _) in ROLES.items()}
    assert found["subscriber"] == found["relay"] < found["edge"] < found["spark"] < found["service"]
    assert found["edge"] < found["control"] < found["service"] < found["all"] < found["laboratory"]
    assert {"pyarrow", "nats-py", "msgspec"} <= found["subscriber"]
    assert not {"matplotlib", "duckdb", "polars", "rtree", "psutil"} & found["service"]
    assert {"headgate", "headgate-studies", "matplotlib", "duckdb"} <= found["laboratory"]
    assert sum(map(size_bytes, found["subscriber"])) < sum(map(size_bytes, found["service"])) / 3


def test_an_import_is_timed_by_itself() -> None:
    cpu_s, modules = import_cost("json", 1)
    assert 0 < cpu_s < 60
    assert 10 < modules < 500
