"""Running a replay: Spark matches the recorded rows once, and every variant delivers them in its own virtual time."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import HeadgateError, nearest
from headgate.model import Deployment, Source
from headgate.pipeline.recorded_data import MicroBatch, Pace, match_recorded, ticks_of
from headgate.replay.chart import draw_comparison
from headgate.replay.outcome import Receipts, folder_of, report_of
from headgate.replay.variants import Variant
from headgate.replay.world import ReplayWorld

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS: Final = {
    ".parquet": "parquet", ".pq": "parquet", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv",
    ".orc": "orc", ".xml": "xml", ".avro": "avro",
}  # fmt: skip
_COMPRESSED: Final = frozenset({".gz", ".bz2", ".zst", ".lz4", ".snappy"})
_EVENLY_S: Final = 86_400.0  # where no row has a time, the first one comes a day after the beginning of 1970
_CSV: Final = {"header": "true"}


@dataclass(frozen=True, slots=True)
class Recording:
    """Recorded rows of a stream: where they are, in which format, and the options of its reader."""

    stream: str
    path: str
    format: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replay:
    """What is to be replayed, at which pace, through which variants. `out` is a directory for rows and chart."""

    recordings: Sequence[Recording]
    variants: Sequence[Variant]
    pace: Pace = field(default_factory=Pace)
    out: Path | None = None


def recording_of(
    text: str, deployment: Deployment, format_name: str | None, options: Mapping[str, str], stream: str | None = None
) -> Recording:
    """The recording that `PATH`, or `STREAM=PATH`, stands for; the format is known by the name of the file."""
    name, equals, path = text.partition("=")
    if not equals or name not in deployment.streams:
        name, path = stream or "", text
    if not name:
        if len(deployment.streams) != 1:
            raise HeadgateError(
                f"which stream are the rows of {path!r}?",
                hint="write STREAM=PATH, or give --stream; streams are " + ", ".join(deployment.streams),
            )
        name = next(iter(deployment.streams))
    if name not in deployment.streams:
        close = nearest(name, deployment.streams)
        hint = f"did you mean {close!r}?" if close else "streams are " + ", ".join(deployment.streams)
        raise HeadgateError(f"there is no stream {name!r}", hint=hint)
    found = format_name or _format_of(path)
    return Recording(name, path, found, {**(_CSV if found == "csv" else {}), **options})


def _format_of(path: str) -> str:
    place = Path(path)
    if "://" not in path and not place.exists() and not any(letter in path for letter in "*?[{"):
        raise HeadgateError(f"there is no file or directory {path!r}", hint="give recorded rows that Spark can read")
    names = [place.name]
    if place.is_dir():
        names = sorted(each.name for each in place.rglob("*") if each.is_file() and each.name[0] not in "._")
    for name in names:
        suffixes = [suffix for suffix in Path(name).suffixes if suffix not in _COMPRESSED]
        if suffixes and suffixes[-1].lower() in FORMATS:
            return FORMATS[suffixes[-1].lower()]
    raise HeadgateError(
        f"nothing says in which format {path!r} is", hint="give --format: parquet, json, csv, orc or any other of Spark"
    )


def run_replay(spark: SparkSession, replay: Replay, told: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Run recorded rows through every variant; returns the report, and writes files where `out` is given."""
    _check(replay)
    began = time.perf_counter()
    frames, sources = [], []
    deployment = replay.variants[0].snapshot.deployment
    for recording in replay.recordings:
        stream = deployment.streams[recording.stream]
        source = Source(recording.format, {**recording.options, "path": recording.path})
        frame = match_recorded(spark, replay.variants[0].snapshot, replace(stream, source=source), replay.pace)
        frames.append(frame.persist(_disk()))
        rows = frames[-1].selectExpr("coalesce(sum(rows), 0) AS rows").collect()[0]["rows"]
        told(f"{recording.stream}: {rows:,} rows matched by Spark, {time.perf_counter() - began:.1f} s")
        ticks = ticks_of(frames[-1].toLocalIterator(prefetchPartitions=True), replay.pace)
        sources.append(((end_s, number, recording.stream, tick) for number, (end_s, tick) in enumerate(ticks)))
    spark_s = time.perf_counter() - began
    worlds, receipts = deliver(replay, heapq.merge(*sources, key=lambda each: each[0]), told)
    for frame in frames:
        frame.unpersist()
    took_s = time.perf_counter() - began
    return _report(replay, worlds, receipts, spark_s, took_s)


def _check(replay: Replay) -> None:
    classes = [variant.snapshot.class_ids for variant in replay.variants]
    if any(each != classes[0] for each in classes):
        raise HeadgateError("variants must want the same rows", hint="change plans and policies, not filters")
    if replay.pace.rate_rows_per_s is not None:
        return
    streams = replay.variants[0].snapshot.deployment.streams
    for recording in replay.recordings:
        if streams[recording.stream].event_time is None:
            raise HeadgateError(
                f"nobody knows when the rows of {recording.stream!r} came: the stream has no `event_time`",
                hint="give --rate, such as --rate 500/s, or name the column in the deployment file",
            )


def _disk() -> Any:
    from pyspark import StorageLevel

    return StorageLevel.DISK_ONLY


def deliver(
    replay: Replay, ticks: Iterator[tuple[float, int, str, MicroBatch]], told: Callable[[str], None]
) -> tuple[list[ReplayWorld], list[Receipts]]:
    """Let every variant deliver the micro-batches, side by side."""
    worlds: list[ReplayWorld] = []
    receipts: list[Receipts] = []
    pace = replay.pace
    evenly, first_s, said_s = pace.rate_rows_per_s is not None, 0.0, time.perf_counter()
    lags = not evenly and pace.speed == 1.0
    for count, (end_s, _, stream, tick) in enumerate(ticks):
        if not worlds:
            first_s = _EVENLY_S if evenly else end_s
            for variant in replay.variants:
                folder = None if replay.out is None else replay.out / "received" / folder_of(variant.name)
                receipts.append(Receipts(folder, variant.snapshot.subscription_ids))
                worlds.append(ReplayWorld(variant, first_s, receipts[-1].take))
        # Recorded time runs `speed` times as fast.
        virtual_s = first_s + (end_s if evenly else (end_s - first_s) / pace.speed)
        for world in worlds:
            world.commit(stream, virtual_s, tick, lags=lags)
        if time.perf_counter() - said_s > 5.0:
            said_s = time.perf_counter()
            told(f"{count + 1:,} micro-batches, {virtual_s - first_s:,.0f} s of virtual time")
    for world, mine in zip(worlds, receipts, strict=True):
        world.finish()
        mine.close()
    return worlds, receipts


def _report(
    replay: Replay, worlds: Sequence[ReplayWorld], receipts: Sequence[Receipts], spark_s: float, took_s: float
) -> dict[str, Any]:
    variants = [report_of(world) for world in worlds]
    streams = {}
    for recording in replay.recordings:
        sums = worlds[0].sums(recording.stream) if worlds else None
        streams[recording.stream] = {
            "rows": sums.rows_in if sums else 0,
            "evaluated": sums.evaluated if sums else 0,
            "dead": sums.dead if sums else 0,
        }
    rows = sum(each["rows"] for each in streams.values())
    found: dict[str, Any] = {
        "rows": rows,
        "streams": streams,
        "rows_per_s": round(rows / took_s, 1),
        "spark_s": round(spark_s, 3),
        "virtual_s": round(took_s - spark_s, 3),
        "events": sum(world.fabric.events for world in worlds),
        "variants": variants,
        "difference": sum(each["difference"] for each in variants),
    }
    if replay.out is not None:
        replay.out.mkdir(parents=True, exist_ok=True)
        chart = replay.out / "chart.svg"
        chart.write_text(draw_comparison(variants, [each.seconds for each in receipts]), encoding="utf-8")
        found["chart"] = str(chart)
    return found
