"""`headgate bench matching`: the compiled index against what a user could pick instead, on the paper's workload.

Every figure is of one run on one set of profiles and messages; ratios are between CPU times of that run. Matches are
checked against brute force and against every peer's counts, and a difference fails the run.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from headgate.errors import HeadgateError
from headgate.matching import ClassLists, MatchingError
from headgate.matching.compiled.boxes import Attribute, Boxes
from headgate.matching.compiled.index import BoxIndex
from headgate.matching.compiled.keys import float_keys
from headgate.matching.compiled.single import RowMatcher
from headgate_studies.bench.matching_peers import BULKS, PEERS, Case, PeerTiming, Updates
from headgate_studies.bench.versions import check_version, figures_of
from headgate_studies.workloads.matching import FEW_MATCHES, MANY_MATCHES, SELECTIVE, Floats, MatchingWorkload

UPDATES = 200_000
SAMPLE = 5000
CASES = {"a": FEW_MATCHES, "b": MANY_MATCHES, "c": SELECTIVE}


def run(
    *,
    profiles: int = 500_000,
    batch: int = 20_000,
    seed: int = 1,
    peers: str = "rtree,duckdb,polars,spark,scan",
    growth: list[int] | None = None,
    portable: bool = True,
    repeats: int = 7,
    before: str = "",
) -> dict[str, Any]:
    """Print the tables and return the figures.

    `peers` names those to run on workload (a); on the others only `rtree` runs. `growth` lists numbers of profiles.
    `before` is the folder of another version's sources, which match the same messages in turn with this one's.
    """
    if before:
        check_version(before)
    console = Console(width=160)
    figures: dict[str, Any] = {"profiles": profiles, "batch": batch, "cpus": os.cpu_count()}
    wanted = [name for name in peers.split(",") if name]
    mismatches = 0
    for name, workload in CASES.items():
        chosen = wanted if name == "a" else [peer for peer in wanted if peer == "rtree"]
        case = make_case(replace(workload, profiles=profiles), batch, seed)
        found, wrong = _workload(console, name, case, chosen, repeats)
        figures |= found
        mismatches += wrong
    if portable or before:
        figures |= _portable(console, profiles, seed, repeats, before, figures)
    figures |= _growth(console, growth or [10_000, 100_000, 500_000, 1_000_000, 5_000_000], seed, repeats)
    figures["oracle_mismatches"] = mismatches
    if mismatches:
        raise HeadgateError(f"{mismatches} messages did not match what brute force says", hint="this is a bug")
    return figures


def make_case(workload: MatchingWorkload, messages: int, seed: int) -> Case:
    """Profiles, messages (the first `SAMPLE` extra ones are for building) and updates of a workload."""
    rng = np.random.default_rng(seed)
    lows, highs = workload.ranges(workload.contexts(rng))
    drawn = workload.messages(rng, messages + SAMPLE)
    return Case(workload, lows, highs, drawn, make_updates(workload, rng))


def make_updates(workload: MatchingWorkload, rng: np.random.Generator) -> Updates:
    """Updates of a workload as (profile, attribute, low, high)."""
    ids, attributes, centres = workload.updates(rng, UPDATES)
    half = workload.widths[attributes] / 2
    return ids, attributes, centres - half, centres + half


def build(case: Case) -> BoxIndex:
    """The index of a case, packed for the first messages."""
    attributes = [Attribute(name, pa.float64()) for name in case.workload.names]
    boxes = Boxes.of_floats(np.arange(len(case.lows), dtype=np.uint32), case.lows, case.highs)
    return BoxIndex.build(attributes, boxes, sample=case.workload.batch(case.messages[:SAMPLE]))


def _best(work: Callable[[], Any], repeats: int, clock: Callable[[], float] = time.process_time) -> float:
    """The least time of several tries: what the work takes when nobody else has the caches."""
    least = float("inf")
    for _ in range(repeats):
        start = clock()
        work()
        least = min(least, clock() - start)
    return least


def oracle(lows: Floats, highs: Floats, messages: Floats, found: ClassLists, rows: range) -> int:
    """How many of the rows have another list than brute force over the float bounds gives."""
    wrong = 0
    for row in rows:
        inside = ((lows <= messages[row]) & (messages[row] <= highs)).all(axis=1)
        wrong += not np.array_equal(np.flatnonzero(inside), found.row(row))
    return wrong


def _workload(console: Console, name: str, case: Case, peers: list[str], repeats: int) -> tuple[dict[str, Any], int]:
    start = time.process_time()
    index = build(case)
    index.match(case.workload.batch(case.messages[:100]))
    start = time.process_time()
    index = build(case)
    building = time.process_time() - start
    batch = case.workload.batch(case.messages[SAMPLE:])
    rows = batch.num_rows
    message_us = _best(lambda: index.match(batch), repeats) / rows * 1e6
    found = index.match(batch)
    wrong = oracle(case.lows, case.highs, case.messages[SAMPLE:], found, range(0, rows, max(1, rows // 60)))
    figures: dict[str, Any] = {
        f"{name}_us_per_message": round(message_us, 3),
        f"{name}_matches": round(len(found.numbers) / rows, 1),
    }
    measured: dict[str, PeerTiming] = {}
    for peer in peers:
        shifted = replace(case, messages=case.messages[SAMPLE:])
        measured[peer] = PEERS[peer](shifted)
        wrong += int(measured[peer].matches != found.counts()[: measured[peer].messages].sum())
        figures[f"{name}_vs_{peer}"] = round(measured[peer].message_us / message_us, 1)
    if name == "a":
        figures |= _details(console, index, case, batch, message_us, repeats)
        figures["bytes_per_profile"] = round(index.nbytes / len(case.lows), 1)
        figures["build_s"] = round(building, 2)
    updated, changed_wrong = _updates(index, case, batch, measured)
    figures |= {key if name == "a" else f"{name}_{key}": value for key, value in updated.items()}
    _print_peers(console, name, message_us, figures, measured, updated["update_us"])
    return figures, wrong + changed_wrong


def _details(
    console: Console,
    index: BoxIndex,
    case: Case,
    batch: pa.RecordBatch,
    message_us: float,
    repeats: int,
) -> dict[str, Any]:
    """One message at a time, two threads beside the machine's bandwidth, and how soon bad input is refused."""
    matcher = RowMatcher(index)
    rows = [np.ascontiguousarray(row) for row in case.messages[SAMPLE : SAMPLE + 4000]]
    matcher.match_floats(rows[0])
    spent = []
    for row in rows:
        start = time.perf_counter_ns()
        matcher.match_floats(row)
        spent.append(time.perf_counter_ns() - start)
    single = float(np.percentile(spent, 50)) / 1e3
    walls = [_best(partial(index.match, batch, threads), repeats, time.perf_counter) for threads in (1, 2)]
    bandwidth = [_bandwidth(threads) for threads in (1, 2)]
    bad = case.lows.copy()
    bad[-1, -1] = np.nan
    begin = time.process_time()
    try:
        Boxes.of_floats(np.arange(len(bad), dtype=np.uint32), bad, case.highs)
    except MatchingError as error:
        console.print(f"refused: {error}")
    refusal = (time.process_time() - begin) * 1e3
    console.print(f"one message at a time: p50 {single:.1f} us, {single / message_us:.1f} times the batched cost")
    console.print(
        f"two threads: {walls[0] / walls[1]:.2f} times one; reading memory: {bandwidth[0]:.1f} GB/s with one thread, "
        f"{bandwidth[1]:.1f} with two"
    )
    return {
        "single_message_p50_us": round(single, 2),
        "single_vs_batched": round(single / message_us, 2),
        "two_threads_speedup": round(walls[0] / walls[1], 2),
        "read_gb_per_s": round(bandwidth[0], 1),
        "read_gb_per_s_two_threads": round(bandwidth[1], 1),
        "refusal_ms": round(refusal, 1),
    }


def _bandwidth(threads: int) -> float:
    """Gigabytes per second that many threads read together."""
    data = np.ones(32_000_000)
    parts = np.array_split(data, threads)
    with ThreadPoolExecutor(threads) as pool:
        spent = _best(lambda: list(pool.map(np.sum, parts)), 5, time.perf_counter)
    return data.nbytes / spent / 1e9


def _updates(
    index: BoxIndex, case: Case, batch: pa.RecordBatch, measured: dict[str, PeerTiming]
) -> tuple[dict[str, Any], int]:
    """Bulk updates in place, new ones for each size of bulk, checked by brute force afterwards."""

    def change(bulk: int, updates: Updates) -> float:
        """Microseconds per update of all updates in bulks of this size: the least of the bulks."""
        ids, attributes, lows, highs = updates
        low_keys, high_keys = float_keys(lows), float_keys(highs)
        least = float("inf")
        for start in range(0, len(ids), bulk):
            part = slice(start, start + bulk)
            begin = time.process_time()
            index.change(ids[part], attributes[part], low_keys[part], high_keys[part])
            least = min(least, (time.process_time() - begin) / len(ids[part]) * 1e6)
        return least

    fresh = [make_updates(case.workload, np.random.default_rng(bulk)) for bulk in BULKS]
    ids, attributes, lows, highs = fresh[0]
    change(100, (ids[:100], attributes[:100], lows[:100], highs[:100]))
    bulk_us = {bulk: change(bulk, updates) for bulk, updates in zip(BULKS, fresh, strict=True)}
    before = index.moved
    update_us = change(UPDATES // 4, case.updates)
    moved = max(0, index.moved - before) / len(case.updates[0])
    made = [*fresh, case.updates]
    ids, attributes, lows, highs = (np.concatenate(columns) for columns in zip(*made, strict=True))
    new_lows, new_highs = case.lows.copy(), case.highs.copy()
    # The last update of a profile's attribute wins, as NumPy's assignment in order does.
    new_lows[ids, attributes], new_highs[ids, attributes] = lows, highs
    found = index.match(batch)
    wrong = oracle(new_lows, new_highs, case.messages[SAMPLE:], found, range(0, batch.num_rows, 997))
    figures: dict[str, Any] = {
        "update_us": round(update_us, 3),
        "update_moves": round(moved, 2),
        "update_floor_us": round(_floor_us(moved, 2 * case.workload.attributes), 3),
    }
    for peer, result in measured.items():
        if result.update_us is not None:
            figures[f"update_vs_{peer}"] = round(result.update_us / update_us, 1)
        for bulk, spent in result.bulk_us.items():
            figures[f"update_vs_{peer}_by_{bulk}"] = round(spent / bulk_us[bulk], 1)
    return figures, wrong


def _floor_us(moved: float, columns: int) -> float:
    """What an update takes if memory is all that counts: lines of 64 bytes read and written back.

    One holds the exact range. A box that stays in its leaf has two codes there, each in a line of its own; one that
    moves has all its codes in as many lines of the old leaf and of the new one.
    """
    lines = 1 + 2 * (1 - moved) + 2 * columns * moved
    return lines * 64 * 2 / _bandwidth(1) / 1e3


def _print_peers(
    console: Console,
    name: str,
    message_us: float,
    figures: dict[str, Any],
    measured: dict[str, PeerTiming],
    update: float,
) -> None:
    table = Table(
        title=f"({name}) {figures[f'{name}_matches']:.0f} matches a message",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    for heading in ("", "us a message", "ratio", "messages", "us an update", "ratio"):
        table.add_column(heading, justify="right")
    table.add_row("headgate", f"{message_us:,.2f}", "1", "all", f"{update:,.3f}", "1")
    for peer, result in measured.items():
        changing = result.update_us
        table.add_row(
            peer,
            f"{result.message_us:,.0f}",
            f"{result.message_us / message_us:,.0f}",
            str(result.messages),
            "" if changing is None else f"{changing:,.1f}",
            "" if changing is None else f"{changing / update:,.0f}",
        )
    console.print(table)


def _growth(console: Console, sizes: list[int], seed: int, repeats: int) -> dict[str, Any]:
    """Cost against the number of profiles."""
    table = Table(title="cost against the number of profiles", title_justify="left", box=None, pad_edge=False)
    for heading in ("profiles", "us a message", "matches", "us an update", "bytes a profile", "build s"):
        table.add_column(heading, justify="right")
    figures: dict[str, Any] = {}
    for size in sizes:
        case = make_case(replace(FEW_MATCHES, profiles=size), 10_000, seed)
        start = time.process_time()
        index = build(case)
        building = time.process_time() - start
        batch = case.workload.batch(case.messages[SAMPLE:])
        message_us = _best(partial(index.match, batch), min(3, repeats)) / batch.num_rows * 1e6
        matches = int(index.match(batch).counts().sum()) / batch.num_rows
        size_bytes = index.nbytes / size
        update_us = _updates(index, case, case.workload.batch(case.messages[SAMPLE : SAMPLE + 1]), {})[0]["update_us"]
        table.add_row(
            f"{size:,}",
            f"{message_us:.2f}",
            f"{matches:.1f}",
            f"{update_us:.3f}",
            f"{size_bytes:.0f}",
            f"{building:.1f}",
        )
        figures[f"us_per_message_{size}"] = round(message_us, 3)
    console.print(table)
    return figures


def _portable(
    console: Console, profiles: int, seed: int, repeats: int, before: str, figures: dict[str, Any]
) -> dict[str, Any]:
    """The same kernels compiled for a processor without AVX-512, in processes of their own, beside a version before."""
    places = {"now": "", **({"before": before} if before else {})}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in places}
    for _ in range(3 if before else 1):
        for name, place in places.items():
            found[name].append(_measure(place, profiles, seed, repeats))
    least = {name: {case: min(each[case] for each in runs) for case in CASES} for name, runs in found.items()}
    result: dict[str, Any] = {"portable_us_per_message": round(least["now"]["a"], 3)}
    for case, ours in least["now"].items():
        result[f"portable_{case}_us_per_message"] = round(ours, 3)
        if f"{case}_vs_rtree" in figures:
            peer = figures[f"{case}_vs_rtree"] * figures[f"{case}_us_per_message"]
            result[f"portable_{case}_vs_rtree"] = round(peer / ours, 1)
        if before:
            result[f"before_{case}_us_per_message"] = round(least["before"][case], 3)
            result[f"ratio_{case}"] = round(least["before"][case] / ours, 3)
        told = {key: value for key, value in result.items() if f"_{case}" in key}
        console.print("without AVX-512: " + ", ".join(f"{key} {value}" for key, value in told.items()))
    if "portable_a_vs_rtree" in result:
        result["portable_vs_rtree"] = result["portable_a_vs_rtree"]
    return result


def _measure(place: str, profiles: int, seed: int, repeats: int) -> dict[str, float]:
    """Microseconds per message of each workload, by a process that takes the sources in `place` if one is named."""
    code = f"from headgate_studies.bench.matching import portable; portable({profiles}, {seed}, {repeats})"
    processor = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+bmi,+bmi2,+popcnt,+lzcnt"}
    return figures_of(code, place, processor)


def portable(profiles: int, seed: int, repeats: int) -> None:
    """Measure all workloads in this process and print the figures; run by `run` with another target processor."""
    found = {}
    for name, workload in CASES.items():
        case = make_case(replace(workload, profiles=profiles), 20_000, seed)
        index = build(case)
        batch = case.workload.batch(case.messages[SAMPLE:])
        index.match(batch)
        found[name] = _best(partial(index.match, batch), repeats) / batch.num_rows * 1e6
    sys.stdout.write(json.dumps(found) + "\n")
