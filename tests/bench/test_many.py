"""`headgate bench many`: what it asks for is what it compares with, and a small run has every figure."""

import os

import pytest

from headgate_studies.bench import many
from headgate_studies.bench.many_deployment import ProcessFigures, owed, rows_of, wanted


@pytest.mark.parametrize("contexts", [False, True])
def test_brute_force_gives_what_the_filter_says(contexts: bool) -> None:
    from headgate.catalog.profiles import read_filter
    from headgate.filters import parse_filter
    from headgate.model import Schema, Subscription

    rows = rows_of(0, 2_000)
    schema = Schema.of({"n": "bigint", "kind": "int", **{f"a{index}": "double" for index in range(8)}})
    for name, found in wanted(3, 8, contexts=contexts).items():
        text = found["where"]
        for key, value in found.get("context", {}).items():
            text = text.replace(f"${key}", repr(value))
        assert read_filter(Subscription(name, "ticks", "east", text), schema).text
        kept = parse_filter(text, schema).evaluate(rows)
        expected = [row for row, keep in zip(rows.column("n").to_pylist(), kept.tolist(), strict=True) if keep]
        assert owed(int(name[1:]), 0, 2_000, contexts=contexts) == expected
        assert contexts or expected


def test_figures_are_of_this_process_and_its_children() -> None:
    before = ProcessFigures.of(os.getpid())
    assert before.memory_mb["up"] > 10
    assert before.since(before).cpu_s["up"] == 0


@pytest.mark.long
@pytest.mark.nats
@pytest.mark.live
def test_a_small_run_has_every_figure() -> None:
    found = many.run(sizes=(20,), bulk=30, seconds=2.0, readers=5, job=False)
    for size in many.SIZES:
        assert f"change_s_{size}" in found
    assert found["change_s_20"] > 0
    assert (found["readers"], found["reader_mismatches"], found["ledger_difference_20"]) == (5, 0, 0)
    assert found["reader_p99_s"] >= 0
    assert found["bytes_per_subscription"] >= 0
