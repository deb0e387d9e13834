"""Every filter and digester against vectors derived by hand (golden/*.json)."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reduction.reduction_rows import batch

from headgate.model import Schema
from headgate.reduction import parse_policy
from headgate.reduction.digest import DigestTable
from headgate.reduction.digesters import DIGESTERS
from headgate.reduction.filters import FILTERS, Moment, ReductionFilter

_GOLDEN = Path(__file__).parent / "golden"


def _cases(kind: str) -> list[Any]:
    return [
        pytest.param(case, id=f"{path.stem}-{number}")
        for path in sorted((_GOLDEN / kind).glob("*.json"))
        for number, case in enumerate(json.loads(path.read_text()))
    ]


def _filter(case: dict[str, Any]) -> ReductionFilter:
    return parse_policy({"levels": [case["filter"]]}, Schema.of(case["columns"])).levels[0].filters[0]


def test_every_filter_and_digester_has_vectors() -> None:
    assert {path.stem for path in (_GOLDEN / "filters").glob("*.json")} == {kind.name for kind in FILTERS}
    assert {path.stem for path in (_GOLDEN / "digesters").glob("*.json")} == {kind.name for kind in DIGESTERS}


@pytest.mark.parametrize("case", _cases("filters"))
def test_filter_keeps(case: dict[str, Any]) -> None:
    rows = batch(Schema.of(case["columns"]), case["rows"])
    found = _filter(case)
    need = {name: float(case.get(name, 0.0)) for name in ("need_rows", "need_bytes")}
    moment = replace(Moment.of(rows, case.get("now", 0.0)), **need)
    mask, _ = found.keep(rows, None, moment)
    assert mask.astype(int).tolist() == case["keep"], case.get("about")
    if "rewritten" in case:
        rewritten, weights = found.rewrite(rows, mask, moment)
        kept = rewritten.filter(mask.tolist())
        assert {name: kept.column(name).to_pylist() for name in case["rewritten"]} == case["rewritten"]
        assert weights[mask].tolist() == case["weights"]


@pytest.mark.parametrize("case", [each for each in _cases("filters") if "splits" in each.values[0]])
def test_state_carries_over_batches(case: dict[str, Any]) -> None:
    rows = batch(Schema.of(case["columns"]), case["rows"])
    found, state = _filter(case), None
    masks = []
    cuts = [0, *case["splits"], rows.num_rows]
    for start, stop in itertools.pairwise(cuts):
        part = rows.slice(start, stop - start)
        mask, state = found.keep(part, state, Moment.of(part))
        masks.append(mask)
    assert np.concatenate(masks).astype(int).tolist() == case["keep"]


@pytest.mark.parametrize("case", _cases("digesters"))
def test_digester_shows(case: dict[str, Any]) -> None:
    schema = Schema.of(case["columns"])
    rows = batch(schema, case["rows"])
    (digester,) = parse_policy({"digest": [case["digest"]]}, schema).digesters
    count = rows.num_rows
    table = DigestTable.of(rows, np.arange(1, count + 1, dtype=np.uint64), np.zeros(count, int), ("why",), (digester,))
    whole = table.total()
    assert whole is not None
    shown = whole.show()[digester.label] if digester.label != "count()" else whole.count
    assert shown == case["show"]
    singles = [table.pick(slice(index, index + 1)).total() for index in range(count)]
    backwards = singles[-1]
    assert backwards is not None
    for single in reversed(singles[:-1]):
        assert single is not None
        backwards = type(single).from_bytes(backwards.merge(single).to_bytes())
    assert (backwards.count, backwards.first, backwards.last, backwards.reasons) == (count, 1, count, {"why": count})
    merged = backwards.show().get(digester.label, count)
    assert merged == (pytest.approx(case["show"]) if isinstance(case["show"], float) else case["show"])
