"""How many bytes a row's class list takes on a link, under codings from plain to the one that blocks use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.studies import charts
from headgate.studies.intervals import band, mean_interval
from headgate.studies.study import FAILS, PARTLY, REPRODUCES, Parameters, Statement, Study
from headgate.wire.integers import decode_lists, encode_lists

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_ROWS = 2_000
CODINGS = ("raw", "lz4", "zstd", "delta planes lz4", "delta planes zstd", "bitmap zstd")


def class_lists(classes: int, ids_per_row: int, skew: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Sorted lists of distinct class ids: offsets and ids. Popularity falls with rank to the power of `skew`."""
    random = np.random.default_rng(seed)
    weight = np.arange(1, classes + 1) ** -skew
    chance = np.minimum(1.0, weight * ids_per_row / weight.sum())
    while (rest := chance < 1.0).any() and chance.sum() < min(ids_per_row, classes) - 1e-6:
        # The most popular classes cannot be wanted by more than every row: the others make up for it.
        chance[rest] *= (ids_per_row - (~rest).sum()) / chance[rest].sum()
        chance = np.minimum(1.0, chance)
    random.shuffle(chance)
    rows, ids = np.nonzero(random.random((_ROWS, classes)) < chance)
    offsets = np.searchsorted(rows, np.arange(_ROWS + 1)).astype(np.int64)
    return offsets, ids.astype(np.uint32)


def run(parameters: Parameters, seed: int) -> list[dict[str, Any]]:
    """Bytes a row of one block of class lists under each coding; the coding in use is checked by reading it back."""
    classes = int(parameters["classes"])
    offsets, ids = class_lists(classes, int(parameters["ids_per_row"]), float(parameters["skew"]), seed)
    lengths = np.diff(offsets).astype(np.uint32)
    plain = lengths.tobytes() + ids.tobytes()
    deltas = np.diff(ids.astype(np.int64), prepend=0)
    starts = offsets[:-1][lengths > 0]
    deltas[starts] = ids[starts]
    planes = _planes(lengths) + _planes(deltas.astype(np.uint32))
    bitmap = np.zeros((_ROWS, classes), np.bool_)
    bitmap[np.repeat(np.arange(_ROWS), lengths), ids] = True
    ours = encode_lists(offsets, ids)
    read_offsets, read_ids = decode_lists(*ours, _ROWS, len(ids))
    assert np.array_equal(read_offsets, offsets)
    assert np.array_equal(read_ids, ids)
    sizes = {
        "raw": len(plain),
        "lz4": _packed(plain, "lz4"),
        "zstd": _packed(plain, "zstd"),
        "delta planes lz4": _packed(planes, "lz4"),
        "delta planes zstd": sum(map(len, ours)),
        "bitmap zstd": _packed(np.packbits(bitmap, axis=1).tobytes(), "zstd"),
    }
    mean_ids = len(ids) / _ROWS
    return [{"coding": name, "bytes_per_row": size / _ROWS, "mean_ids": mean_ids} for name, size in sizes.items()]


def _planes(values: NDArray[np.uint32]) -> bytes:
    return np.ascontiguousarray(values.view(np.uint8).reshape(-1, 4).T).tobytes()


def _packed(data: bytes, codec: str) -> int:
    return len(pa.compress(data, codec=codec, asbytes=True))


def _middle(results: pd.DataFrame) -> pd.DataFrame:
    """The design's case: about 44 ids a row, the default number of classes and skew where they were run."""
    found = results
    for name, wanted in (("ids_per_row", 44), ("classes", 10_000), ("skew", 0.5)):
        found = found[(found[name] - wanted).abs() == (found[name] - wanted).abs().min()]
    return found


def _bytes(results: pd.DataFrame, coding: str) -> float:
    return mean_interval(results[results["coding"] == coding]["bytes_per_row"].to_numpy()).mean


def _halves(results: pd.DataFrame) -> tuple[str, str]:
    middle = _middle(results)
    raw, ours = _bytes(middle, "raw"), _bytes(middle, "delta planes zstd")
    verdict = REPRODUCES if 0.4 <= ours / raw <= 0.55 else PARTLY if ours < 0.7 * raw else FAILS
    return f"{raw:.0f} B raw (its length included), {ours:.0f} B coded: {ours / raw:.2f} of it", verdict


def _lz4_gains_nothing(results: pd.DataFrame) -> tuple[str, str]:
    middle = _middle(results)
    raw, lz4 = _bytes(middle, "raw"), _bytes(middle, "lz4")
    planes = _bytes(middle, "delta planes lz4")
    verdict = REPRODUCES if lz4 > 0.95 * raw else FAILS
    return f"{lz4:.0f} B of {raw:.0f} B on the plain lists; {planes:.0f} B on delta planes", verdict


def _best_everywhere(results: pd.DataFrame) -> tuple[str, str]:
    means = band(results, ["classes", "ids_per_row", "skew", "coding"], "bytes_per_row")
    table = means.pivot_table(index=["classes", "ids_per_row", "skew"], columns="coding", values="mean")
    best = (table.min(axis=1) >= 0.98 * table["delta planes zstd"]).sum()
    worst = float((table["delta planes zstd"] / table.min(axis=1)).max())
    verdict = REPRODUCES if best == len(table) else PARTLY if worst < 1.5 else FAILS
    return f"smallest (within 2 %) in {best} of {len(table)} settings; at worst {worst:.2f} times the smallest", verdict


def chart(results: pd.DataFrame) -> Figure:
    """Bytes a row over the number of ids, one line a coding, for the most classes that were run."""
    figure, (axes,) = charts.panels()
    most = results["classes"].max()
    skew = _middle(results)["skew"].iloc[0]
    shown = results[(results["classes"] == most) & (results["skew"] == skew)]
    means = band(shown, ["coding", "ids_per_row"], "bytes_per_row")
    for number, coding in enumerate(CODINGS):
        charts.draw_band(axes, means[means["coding"] == coding], "ids_per_row", coding, number)
    axes.set(xscale="log", yscale="log", xlabel="ids a row", ylabel="bytes a row")
    axes.set_title(f"Class lists of {most:,} classes, skew {skew}")
    axes.legend()
    return figure


def summary(results: pd.DataFrame) -> dict[str, Any]:
    """Bytes a row in the design's case."""
    middle = _middle(results)
    return {f"bytes_per_row {coding}": round(_bytes(middle, coding), 2) for coding in CODINGS}


STUDY = Study(
    name="class-list-coding",
    about="Bytes that a row's list of delivery classes takes on a link, under six codings.",
    parameters={"classes": [1_000, 10_000], "ids_per_row": [4, 12, 44, 150], "skew": [0.0, 0.5, 1.0]},
    run=run,
    chart=chart,
    statements=(
        Statement("44 ids a row take 176 B raw and 83 B as delta byte planes under zstd (our design)", _halves),
        Statement("LZ4 gains nothing on class lists (our design)", _lz4_gains_nothing),
        Statement("Delta byte planes under zstd are the smallest coding throughout (our choice)", _best_everywhere),
    ),
    summary=summary,
    seeds=5,
    notes=f"Blocks of {_ROWS:,} rows; ids are sorted within a row, and `skew` is how fast a class's popularity falls.",
)
