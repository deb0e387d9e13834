"""Recorded rows through a deployment in virtual time, without Spark's processes: what arrives, when, what is given up.

The rows go through the very function that Spark runs on a partition. DuckDB says what each subscription wants.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from tests.replay.recorded_rows import FILTERS, FIRST_US, PLAN, fleet, rows

from headgate.errors import HeadgateError
from headgate.pipeline.recorded_data import MicroBatch, Pace, RecordedPass, ticks_of
from headgate.pipeline.sources.jsontext import RAW
from headgate.pipeline.validate import DEAD
from headgate.replay.chart import draw_comparison
from headgate.replay.outcome import report_of
from headgate.replay.run import Replay, deliver, recording_of
from headgate.replay.variants import Variant, make_variants


def matched(variant: Variant, table: pa.Table, pace: Pace, batch_rows: int = 700) -> Iterator[tuple[float, MicroBatch]]:
    """What Spark's partitions give for rows in order, in batches of any size."""
    dead = pc.if_else(pc.is_null(table["at"]), "event time 'at' is null", pa.scalar(None, pa.string()))
    nothing = pa.nulls(table.num_rows, pa.string())
    whole = table.append_column(DEAD, dead).append_column(RAW, nothing)
    work = RecordedPass(variant.snapshot.to_bytes(), "fleet", pace)
    given = (batch for batch in whole.to_batches(max_chunksize=batch_rows))
    return ticks_of((row for out in work(given) for row in out.to_pylist()), pace)


def run(variants: list[Variant], table: pa.Table, pace: Pace, out: Path | None = None) -> list[dict[str, Any]]:
    """The reports of all variants."""
    ticks = ((end_s, number, "fleet", tick) for number, (end_s, tick) in enumerate(matched(variants[0], table, pace)))
    worlds, receipts = deliver(Replay([], variants, pace, out), ticks, lambda _: None)
    reports = [report_of(world) for world in worlds]
    drawn = ET.fromstring(draw_comparison(reports, [each.seconds for each in receipts]))
    assert drawn.tag.endswith("svg")
    return reports


def test_every_subscription_receives_what_duckdb_selects_and_in_time(tmp_path: Path) -> None:
    table = rows(600)
    (report,) = run(make_variants(fleet(tmp_path), ["brush"], [])[1:], table, Pace(), tmp_path / "out")
    folder = tmp_path / "out" / "received" / "brush"
    database = duckdb.connect()
    for name, where in FILTERS.items():
        line = report["subscriptions"][name]
        columns = '"at", unit, zone' if name == "zones" else '"at", unit, speed, zone'
        got = f"SELECT {columns} FROM '{folder / name}.parquet'"
        wanted = f"SELECT {columns} FROM recorded WHERE {where}"
        recorded = table
        assert database.sql(f"({got} EXCEPT ALL {wanted}) UNION ALL ({wanted} EXCEPT ALL {got})").fetchall() == []
        assert line["matched"] == line["delivered"] == database.sql(f"SELECT count(*) FROM ({wanted})").fetchall()[0][0]
        # Nothing arrives before its micro-batch has ended, the delay of its link later and not a second more.
        least, most = database.sql(
            f'SELECT min(epoch_us(_received) - epoch_us("at")), max(epoch_us(_received) - epoch_us("at")) '
            f"FROM '{folder / name}.parquet'"
        ).fetchall()[0]
        delay_us = {"fast": 50_000, "zones": 400_000, "all": 0}[name]
        assert delay_us <= least < most < delay_us + 1_300_000
        assert line["delay_s"] == pytest.approx(delay_us / 1e6, abs=0.1)
    assert report["difference"] == report["given_up"] == report["in_flight"] == 0
    assert recorded is table


def test_what_a_narrow_upload_gives_up_is_by_the_policy_and_accounted_for(tmp_path: Path) -> None:
    policies = tmp_path / "latest.yaml"
    latest = {"levels": [{"latest": 1, "key": "unit"}], "max_age": "2 s"}
    policies.write_text(yaml.safe_dump({"*": latest, "all": None}), encoding="utf-8")
    variants = make_variants(fleet(tmp_path, "1 kB/s"), [], [policies])
    assert [variant.name for variant in variants] == ["as deployed", "latest.yaml"]
    first, second = run(variants, rows(600, rate=400.0), Pace(), tmp_path / "out")
    for report in (first, second):
        assert report["difference"] == report["in_flight"] == 0
        assert report["subscriptions"]["all"]["delivered"] == 600
    plain, thinned = first["subscriptions"]["fast"], second["subscriptions"]["fast"]
    assert plain["matched"] == thinned["matched"]
    assert thinned["reduced"].keys() <= {"latest", "max_age"}
    assert sum(thinned["reduced"].values()) > 0
    assert thinned["delay_s"] < plain["delay_s"]
    given_up = duckdb.sql(
        f"SELECT sum(rows) FROM '{tmp_path / 'out' / 'received' / 'latest.yaml' / 'given_up.parquet'}' "
        "WHERE subscription = 'fast'"
    ).fetchall()
    assert given_up == [(sum(thinned["reduced"].values()),)]


def test_two_plans_are_compared_on_the_same_rows(tmp_path: Path) -> None:
    chain = tmp_path / "chain.json"
    chain.write_text(json.dumps({"plan": {"fleet": {"root": "hub", "parents": {"north": "hub", "south": "north"}}}}))
    brush = tmp_path / "brush.json"
    brush.write_text(json.dumps(PLAN))
    variants = make_variants(fleet(tmp_path), [str(chain), str(brush)], [])
    assert [variant.name for variant in variants] == ["chain.json", "brush.json"]
    by_chain, by_brush = run(variants, rows(500), Pace())
    assert by_chain["subscriptions"]["zones"]["delivered"] == by_brush["subscriptions"]["zones"]["delivered"]
    # South is 400 ms from the hub, and 50 ms from north, which is 50 ms from the hub.
    assert by_chain["subscriptions"]["zones"]["delay_s"] < 0.2 < by_brush["subscriptions"]["zones"]["delay_s"]
    assert set(by_chain["links"]) == {"hub to north, fleet", "north to south, fleet"}
    assert set(by_brush["links"]) == {"hub to north, fleet", "hub to south, fleet"}


def test_recorded_silence_is_skipped_and_a_higher_speed_is_a_higher_load(tmp_path: Path) -> None:
    deployment, table = fleet(tmp_path, "4 kB/s"), rows(300)
    later = pc.add(table["at"].cast("int64"), pa.scalar(40 * 86_400_000_000)).cast(table["at"].type)
    twice = pa.concat_tables([table, table.set_column(0, "at", later)])
    (calm,) = run(make_variants(deployment, [], []), twice, Pace())
    assert calm["subscriptions"]["all"]["delivered"] == 600
    assert calm["ended_s"] > 40 * 86_400
    (hurried,) = run(make_variants(deployment, [], []), table, Pace(speed=20.0))
    assert hurried["subscriptions"]["fast"]["delay_s"] > calm["subscriptions"]["fast"]["delay_s"]
    assert hurried["difference"] == 0


def test_rows_without_a_time_are_dead_letters_and_an_even_rate_needs_no_times(tmp_path: Path) -> None:
    table = rows(100)
    missing = pa.array([None] * 5 + table["at"].to_pylist()[5:], table["at"].type)
    holes = table.set_column(0, "at", missing)
    (variant,) = make_variants(fleet(tmp_path), [], [])
    (report,) = run([variant], holes, Pace())
    assert report["subscriptions"]["all"]["matched"] == 95
    ticks = list(matched(variant, table, Pace(rate_rows_per_s=10.0)))
    assert [(end_s, tick.rows) for end_s, tick in ticks] == [(second, 10) for second in range(1, 11)]
    assert sum(tick.rows for _, tick in matched(variant, holes, Pace())) == 100


def test_the_same_rows_in_other_batches_give_the_same_ticks(tmp_path: Path) -> None:
    (variant,) = make_variants(fleet(tmp_path), [], [])
    table = rows(400)
    one, other = (list(matched(variant, table, Pace(), size)) for size in (400, 7))
    assert [(end_s, tick.rows) for end_s, tick in one] == [(end_s, tick.rows) for end_s, tick in other]
    assert one[0][0] == FIRST_US / 1e6 + 1
    for (_, mine), (_, same) in zip(one, other, strict=True):
        assert [each.tolist() for each in mine.staged.class_counts()] == [
            each.tolist() for each in same.staged.class_counts()
        ]


def test_thinning_that_holds_always_is_what_duckdb_finds_and_is_declared(tmp_path: Path) -> None:
    table, deployment = rows(800), fleet(tmp_path)
    thin = {
        "every": replace(deployment.subscriptions["fast"], name="every", every_s=2.0),
        "most": replace(deployment.subscriptions["all"], name="most", at_most_rows_per_s=10.0),
    }
    (variant,) = make_variants(replace(deployment, subscriptions=thin), [], [])
    (report,) = run([variant], table, Pace(), tmp_path / "out")
    numbered = 'SELECT *, row_number() OVER (PARTITION BY PLACE ORDER BY "at") AS n FROM recorded'
    every = numbered.replace("PLACE", 'unit, floor(epoch_us("at") / 2e6)')
    most = numbered.replace("PLACE", 'floor(epoch_us("at") / 1e6)')
    queries = {
        "every": f'SELECT unit, "at" FROM ({every} WHERE speed > 60) WHERE n = 1',
        "most": f'SELECT unit, "at" FROM ({most}) WHERE n <= 10',
    }
    database, recorded = duckdb.connect(), table
    for name, wanted in queries.items():
        got = f"SELECT unit, \"at\" FROM '{tmp_path / 'out' / 'received' / 'as-deployed' / name}.parquet'"
        assert database.sql(f"({got} EXCEPT ALL {wanted}) UNION ALL ({wanted} EXCEPT ALL {got})").fetchall() == []
        line = report["subscriptions"][name]
        assert line["reduced"] == {{"every": "every", "most": "at_most"}[name]: line["matched"] - line["delivered"]}
        assert 0 < line["delivered"] < line["matched"]
    assert report["difference"] == 0
    assert recorded is table


REFUSED = [
    ("no.parquet", {}, "there is no file or directory 'no.parquet'"),
    ("rows.bin", {}, "nothing says in which format"),
    ("rows.csv", {"stream": "flet"}, "there is no stream 'flet'"),
]


@pytest.mark.parametrize(("name", "more", "message"), REFUSED)
def test_refused_data(tmp_path: Path, name: str, more: dict[str, str], message: str) -> None:
    for made in ("rows.bin", "rows.csv"):
        (tmp_path / made).write_text("")
    path = name if name.startswith("no.") else str(tmp_path / name)
    with pytest.raises(HeadgateError, match=message):
        recording_of(path, fleet(tmp_path), None, {}, **more)


REFUSED_PLANS = [
    ({"flet": {"root": "hub", "parents": {}}}, "the plan has a stream 'flet'"),
    ({"fleet": {"root": "hub", "parents": {"nord": "hub"}}}, "the plan has a site 'nord'"),
    ({"fleet": {"root": "north", "parents": {"hub": "north"}}}, "the plan's root of 'fleet' is 'north'"),
    ([1], "a plan is a map of names"),
]


@pytest.mark.parametrize(("document", "message"), REFUSED_PLANS)
def test_refused_plans(tmp_path: Path, document: Any, message: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    with pytest.raises(HeadgateError, match=message):
        make_variants(fleet(tmp_path), [str(path)], [])


REFUSED_POLICIES = [
    ({"fats": None}, "there is no subscription 'fats'"),
    ({"fast": {"levels": [{"latest": 1, "key": "unti"}]}}, "unti"),
    ("latest", "a set of policies is a map"),
]


@pytest.mark.parametrize(("document", "message"), REFUSED_POLICIES)
def test_refused_policies(tmp_path: Path, document: Any, message: str) -> None:
    path = tmp_path / "policies.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(HeadgateError, match=message):
        make_variants(fleet(tmp_path), [], [path])


def test_an_unknown_plan_and_four_variants_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HeadgateError, match="there is no plan 'bush'"):
        make_variants(fleet(tmp_path), ["bush"], [])
    with pytest.raises(HeadgateError, match="four deployments"):
        make_variants(fleet(tmp_path), ["brush", "chain"], [tmp_path / "a", tmp_path / "b"])


def test_averages_of_windows_are_what_duckdb_finds_and_the_rows_behind_them_are_accounted_for(tmp_path: Path) -> None:
    deployment, table = fleet(tmp_path), rows(3000)
    hourly = replace(deployment.subscriptions["fast"], name="hourly", average_s=2.0)
    deployment = replace(deployment, subscriptions={"hourly": hourly})
    (report,) = run(make_variants(deployment, [], []), table, Pace(), tmp_path / "out")
    recorded = table
    windows = duckdb.sql(
        """WITH fast AS (SELECT *, floor(epoch_us("at") / 2e6) AS w FROM recorded WHERE speed > 60),
        ends AS (SELECT unit AS u, max(w) AS newest FROM fast GROUP BY unit)
        SELECT unit, w * 2e6, round(avg(speed), 6), arg_max(zone, "at") FROM fast JOIN ends ON unit = u
        WHERE w < newest AND w > (SELECT arg_min(w, "at") FROM fast) GROUP BY unit, w ORDER BY ALL"""
    ).fetchall()
    (path,) = (tmp_path / "out" / "received").glob("*/hourly.parquet")
    got = duckdb.sql(f"SELECT unit, epoch_us(\"at\"), round(speed, 6), zone FROM '{path}' ORDER BY ALL").fetchall()
    assert got == windows
    assert len(got) > 300
    line = report["subscriptions"]["hourly"]
    assert line["reduced"] == {"average": line["matched"] - line["delivered"]}
    assert line["delivered"] == len(got)
    assert report["difference"] == report["in_flight"] == 0
    assert recorded is table
