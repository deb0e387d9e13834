"""Problems and plans as JSON documents, so that anybody can pose a problem and check our answer.

The form is described in docs/planning.md. Interests are lists of indices into the stream's `weights` and `widths`;
bandwidths are bytes per second and null where unknown; delays are a matrix in the order of the sites, or one number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headgate.model import Plan, Quality, QualityTable, Site, Tree
from headgate.planning.interest import InterestPieces, Universe
from headgate.planning.problem import Delays, Flow, Member, Problem, ProblemError, Want


def problem_document(problem: Problem) -> dict[str, Any]:
    """The document of a problem."""
    n = len(problem.sites)
    matrix = [[problem.delays.between(i, j) if i != j else 0.0 for j in range(n)] for i in range(n)]
    return {
        "model": "physical" if problem.physical else "logical",
        "sites": [
            {
                "name": site.name,
                "upload": site.upload_bytes_per_s,
                "download": site.download_bytes_per_s,
                "processing_delay": site.processing_delay_s,
            }
            for site in problem.sites
        ],
        "delays": matrix,
        "links": [{"ends": sorted(ends), "capacity": capacity} for ends, capacity in problem.capacities.items()],
        "relays": sorted(problem.relays),
        "streams": [
            {
                "name": flow.name,
                "root": flow.root,
                "rate": flow.rate_rows_per_s,
                "weights": list(flow.universe.weights),
                "widths": list(flow.universe.widths),
                "base_bytes": flow.universe.base_bytes,
            }
            for flow in problem.flows
        ],
        "members": [_member_document(member) for member in problem.members],
    }


def _member_document(member: Member) -> dict[str, Any]:
    return {
        "stream": member.stream,
        "site": member.site,
        "rows": _indices(member.interest.rows),
        "columns": _indices(member.interest.columns),
        **({"bulk": member.bulk} if member.bulk != 1.0 else {}),
        "wants": [
            {"name": want.name, "weight": want.weight, "quality": _quality_document(want.quality)}
            for want in member.wants
        ],
    }


def _quality_document(quality: Quality) -> dict[str, Any]:
    document: dict[str, Any] = {"drop": quality.drop, "delay": quality.delay_s, "at_least": quality.at_least}
    if quality.table is not None:
        table = quality.table
        document["table"] = {
            "kind": table.kind,
            "drop": list(table.drops),
            "delay": list(table.delays_s),
            "value": [list(row) for row in table.values],
        }
    return document


def parse_problem(document: Any) -> Problem:
    """The problem of a document; what is missing or wrong is named with its place."""
    try:
        return _parse_problem(document)
    except KeyError as error:
        raise ProblemError(
            f"the problem has no {error.args[0]!r}", hint="docs/planning.md describes the form"
        ) from None
    except (TypeError, ValueError, AttributeError) as error:
        raise ProblemError(f"the problem is not in its form: {error}", hint="see docs/planning.md") from None


def _parse_problem(document: Mapping[str, Any]) -> Problem:
    sites = tuple(
        Site(str(s["name"]), s.get("upload"), s.get("download"), None, float(s.get("processing_delay", 0.0)))
        for s in document["sites"]
    )
    flows = tuple(
        Flow(
            str(s["name"]),
            str(s["root"]),
            float(s["rate"]),
            Universe(tuple(map(float, s["weights"])), tuple(map(float, s.get("widths", ()))), s.get("base_bytes", 1.0)),
        )
        for s in document["streams"]
    )
    universes = {flow.name: flow.universe for flow in flows}
    members = []
    for entry in document["members"]:
        if entry["stream"] not in universes:
            raise ProblemError(f"site {entry['site']!r} wants {entry['stream']!r}, which is no stream")
        rows, columns = (sum(1 << int(i) for i in set(entry.get(key, ()))) for key in ("rows", "columns"))
        wants = tuple(
            Want(str(want["name"]), _parse_quality(want.get("quality", {})), float(want.get("weight", 1.0)))
            for want in entry.get("wants", ())
        )
        interest, bulk = InterestPieces(universes[entry["stream"]], rows, columns), float(entry.get("bulk", 1.0))
        members.append(Member(entry["stream"], str(entry["site"]), interest, wants, bulk))
    delays = document.get("delays", 0.0)
    return Problem(
        sites,
        flows,
        tuple(members),
        Delays(base_s=float(delays)) if isinstance(delays, int | float) else Delays(np.array(delays, np.float64)),
        {frozenset(map(str, link["ends"])): float(link["capacity"]) for link in document.get("links", ())},
        document.get("model", "logical") == "physical",
        frozenset(map(str, document.get("relays", ()))),
    )


def _parse_quality(document: Mapping[str, Any]) -> Quality:
    table = document.get("table")
    return Quality(
        float(document.get("drop", 1.0)),
        float(document.get("delay", 10.0)),
        document.get("at_least"),
        None
        if table is None
        else QualityTable(
            table["kind"],
            tuple(map(float, table["drop"])),
            tuple(map(float, table["delay"])),
            tuple(tuple(map(float, row)) for row in table["value"]),
        ),
    )


def plan_document(plan: Plan) -> dict[str, Any]:
    """The document of a plan: of each stream its root and the parent of each member."""
    return {
        name: {"root": tree.root, "parents": dict(sorted(tree.parents.items()))} for name, tree in plan.trees.items()
    }


def parse_plan(document: Any) -> Plan:
    """The plan of a document."""
    if not isinstance(document, Mapping):
        raise ProblemError(
            "a plan is a map of streams", hint='for example {"wind": {"root": "a", "parents": {"b": "a"}}}'
        )
    try:
        return Plan({name: Tree(name, tree["root"], dict(tree.get("parents", {}))) for name, tree in document.items()})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProblemError(f"the plan is not in its form: {error}", hint="see docs/planning.md") from None


def _indices(bits: int) -> list[int]:
    return [index for index in range(bits.bit_length()) if bits >> index & 1]
