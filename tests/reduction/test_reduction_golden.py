"""Every filter and digester against vectors derived by hand (golden/*.json)."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.reduction.reduction_rows import batch

from headgate.model import Schema
from headgate.reduction import parse_policy
from headgate.reduction.digest import DigestTable
from headgate.reduction.digesters import DIGESTERS
from headgate.reduction.filters import FILTERS, Moment, ReductionFilter
from headgate_studies.bench.reduction import documents as bench_documents

_GOLDEN = Path(__file__).parent / "golden"


def _cases(kind: str) -> list[Any]:
    return [
        pytest.param(case, id=f"{path.stem}-{number}")
        for path in sorted((_GOLDEN / kind).glob("*.json"))
        for number, case in enumerate(json.loads(path.read_text()))
    ]


def _filter(case: dict[str, Any]) -> ReductionFilter:
    return parse_policy({"levels": [case["filter"]]}, Schema.of(case["columns"])).levels[0].filters[0]


@pytest.mark.parametrize(("folder", "kinds"), [("filters", FILTERS), ("digesters", DIGESTERS)])
def test_every_filter_and_digester_has_vectors(folder: str, kinds: tuple[type[Any], ...]) -> None:
    known, named = {path.stem for path in (_GOLDEN / folder).glob("*.json")}, {kind.name for kind in kinds}
    missing = [f"tests/reduction/golden/{folder}/{name}.json" for name in sorted(named - known)]
    assert not missing, f"write rows and what is expected of them, as in the files beside: {missing}"
    assert not known - named, f"vectors of what is not in the list of headgate.reduction.{folder}"


def test_every_filter_is_described_and_measured() -> None:
    page = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
    section = page.partition("\n## Filters\n")[2].partition("\n## ")[0].replace(" where", "_where")
    told = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`]+)`", section))))
    names = {kind.name for kind in FILTERS}
    assert not names - told, f"the table of filters in docs/policies.md has no row for {sorted(names - told)}"
    apart = sorted(names ^ set(bench_documents()))
    assert not apart, f"filters and _DOCUMENTS in headgate_studies/bench/reduction.py differ in {apart}"


@pytest.mark.parametrize("case", _cases("filters"))
def test_filter_keeps(case: dict[str, Any]) -> None:
    rows = batch(Schema.of(case["columns"]), case["rows"])
    found = _filter(case)
    need = {name: float(case.get(name, 0.0)) for name in ("need_rows", "need_bytes")}
    moment = replace(Moment.of(rows, case.get("now", 0.0)), **need)
    mask, _ = found.keep(rows, None, moment)
    assert mask.astype(int).tolist() == case["keep"], case.get("about")
    # A queue holds the selected columns and those that `reads` names: another one may not be there.
    needed = rows.select([name for name in rows.schema.names if name in found.reads()])
    if needed.num_columns:
        try:
            alone, _ = found.keep(needed, None, moment)
        except KeyError as error:
            pytest.fail(f"{type(found).__name__}.reads does not name a column that keep reads: {error}")
        assert alone.tolist() == mask.tolist(), "with the columns of `reads` alone the filter keeps other rows"
    if "rewritten" in case:
        rewritten, weights = found.rewrite(rows, mask, moment)
        kept = rewritten.filter(mask.tolist())
        assert {name: kept.column(name).to_pylist() for name in case["rewritten"]} == case["rewritten"]
        assert weights[mask].tolist() == case["weights"]


def _kept_in_parts(case: dict[str, Any], found: ReductionFilter, delivered: bool) -> list[int]:
    """The rows in the parts of `splits`, on with what `keep` returns, or as a queue with what `delivered` does."""
    rows = batch(Schema.of(case["columns"]), case["rows"])
    state, masks = None, []
    for start, stop in itertools.pairwise([0, *case["splits"], rows.num_rows]):
        part = rows.slice(start, stop - start)
        mask, after = found.keep(part, state, Moment.of(part))
        masks.append(mask)
        state = found.delivered(part.filter(pa.array(mask)), state) if delivered else after
    return np.concatenate(masks).astype(int).tolist()


@pytest.mark.parametrize("case", [each for each in _cases("filters") if "splits" in each.values[0]])
def test_state_carries_over_batches(case: dict[str, Any]) -> None:
    assert _kept_in_parts(case, _filter(case), delivered=False) == case["keep"]


@pytest.mark.parametrize(
    "case", [each for each in _cases("filters") if "splits" in each.values[0] and "queue" not in each.values[0]]
)
def test_a_queue_has_the_same_memory(case: dict[str, Any]) -> None:
    """A queue goes on with the state of `delivered`, not of `keep`; `"queue": "anew"` says that it has no memory."""
    found = _filter(case)
    kept = _kept_in_parts(case, found, delivered=True)
    assert kept == case["keep"], f"{type(found).__name__}.delivered does not give the memory that keep returns"


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
