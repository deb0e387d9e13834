"""The demo's weather field for ten subscribers at five resolutions: bytes on links, and the picture each of them has.

Rows are those of the `weather` generator, bytes are those of the wire's row coding, and the tree is the demo's. Five
subscribers take the whole field, five a box in it, each at 1, 1/2, 1/4, 1/8 and 1/16 of the points. One stream carries
each row once over a link, with a compressed mask of the classes that it is for where there are several; otherwise there
is a stream for each resolution.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headgate.grid import Field, GridPredicate, grid_predicate, layout_of
from headgate.model import Source, Stream, Subscription
from headgate.pipeline.sources.generators.weather import WEATHER
from headgate.wire.rows import encode_rows
from headgate_studies.studies import charts
from headgate_studies.studies.study import FAILS, REPRODUCES, Parameters, Statement, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_SIDE, _STEPS, _TICK_US = 64, 8, 900_000_000
_PARENTS = {
    "london": "oslo",
    "berlin": "oslo",
    "paris": "london",
    "ship": "london",
    "rome": "berlin",
    "lyon": "paris",
    "madrid": "paris",
}
_SITES = ("lyon", "madrid", "rome", "ship", "paris")
_SHARES = tuple(Fraction(1, 2**k) for k in range(5))
_BOX = {"box": [12, 12, 52, 52]}
_STREAM = Stream(
    "weather",
    WEATHER.schema,
    Source("generator"),
    "oslo",
    options={
        "grid": {
            "x": {"column": "x", "size": _SIDE},
            "y": {"column": "y", "size": _SIDE},
            "block": 16,
            "time": {"tick": "step", "block": 16},
        }
    },
)


def rows_of(seed: int) -> pa.RecordBatch:
    """The field's rows over all steps."""
    numbers = np.arange(_SIDE * _SIDE * _STEPS)
    options = {"width": _SIDE, "height": _SIDE}
    columns = dict(WEATHER.columns(seed, numbers, options))
    steps = np.asarray(columns["step"])
    columns["at"] = pa.array(steps * _TICK_US, pa.timestamp("us", tz="UTC"))
    return pa.record_batch([columns[name] for name in WEATHER.schema.names], schema=WEATHER.schema.arrow)


def subscribers() -> list[tuple[Subscription, GridPredicate]]:
    """Ten subscriptions with their predicates."""
    layout = layout_of(_STREAM)
    found = []
    for region in (None, _BOX):
        for site, share in zip(_SITES if region is None else _SITES[::-1], _SHARES, strict=True):
            name = f"{'field' if region is None else 'box'} at {share}"
            wanted = Subscription(name, "weather", site, resolution={"space": str(share)}, region=region)
            predicate = grid_predicate(wanted, _STREAM, layout=layout)
            assert predicate is not None
            found.append((wanted, predicate))
    return found


def run(parameters: Parameters, seed: int) -> dict[str, Any]:
    """Bytes over all links of the tree, for one stream and for one per resolution."""
    del parameters
    batch = rows_of(seed)
    below: dict[str, list[tuple[str, np.ndarray]]] = {}
    for wanted, predicate in subscribers():
        keep = predicate.evaluate(batch, {})
        site = wanted.site
        while site in _PARENTS:
            below.setdefault(site, []).append((str((wanted.resolution or {})["space"]), keep))
            site = _PARENTS[site]
    one = separate = 0
    for asked in below.values():
        masks = [keep for _, keep in asked]
        one += _bytes(batch, np.logical_or.reduce(masks)) + _mask_bytes(masks)
        for share in {share for share, _ in asked}:
            separate += _bytes(batch, np.logical_or.reduce([keep for wanted, keep in asked if wanted == share]))
    return {"one_stream_bytes": one, "per_resolution_bytes": separate, "ratio": separate / one}


def _bytes(batch: pa.RecordBatch, keep: np.ndarray) -> int:
    return len(encode_rows(batch.filter(pa.array(keep))))


def _mask_bytes(masks: list[np.ndarray]) -> int:
    """Bytes that say which class each row is for; none when there is one class."""
    if len(masks) < 2:
        return 0
    bits = np.zeros(len(masks[0]), dtype=np.uint16)
    for number, keep in enumerate(masks):
        bits |= keep.astype(np.uint16) << number
    planes = bits[bits > 0].view(np.uint8).reshape(-1, 2).T.copy()
    return len(pa.compress(planes.tobytes(), codec="zstd", asbytes=True))


def _fewer(results: pd.DataFrame) -> tuple[str, str]:
    ratio = float(results["ratio"].mean())
    one = float(results["one_stream_bytes"].mean()) / 1e6
    text = f"{one:.1f} MB on links with one stream; {ratio:.2f} times that with a stream per resolution"
    return text, REPRODUCES if ratio > 1 else FAILS


def chart(results: pd.DataFrame) -> Figure:
    """What each of the ten subscribers has of the wind at the last step; missing points show their neighbour."""
    batch = rows_of(int(results["seed"].min()))
    figure, axes = charts.panels(5, 2, width=2.6, height=2.7)
    layout = layout_of(_STREAM)
    assert layout is not None
    highest = float(np.asarray(batch["wind"]).max())
    for panel, (wanted, predicate) in zip(axes, subscribers(), strict=True):
        field = Field(layout, ("wind",))
        field.add(batch.filter(pa.array(predicate.evaluate(batch, {}))))
        shown = field.filled("wind")
        if predicate.region is not None:
            x, y = (axis.ravel() for axis in np.meshgrid(np.arange(_SIDE, dtype=float), np.arange(_SIDE, dtype=float)))
            outside = ~predicate.region.contains(x, y, {}).reshape(_SIDE, _SIDE)
            shown = np.where(outside, np.nan, shown)
        panel.imshow(shown, origin="lower", vmin=0, vmax=highest, cmap="viridis")
        panel.set_title(f"{wanted.name}: {100 * field.share('wind'):.1f} %", fontsize=9)
        panel.set_xticks([])
        panel.set_yticks([])
        panel.grid(visible=False)
    return figure


STUDY = Study(
    name="grid-weather",
    about="the weather field for ten subscribers at five resolutions: bytes and pictures",
    parameters={"field": ["weather"]},
    run=run,
    chart=chart,
    statements=(Statement("one stream needs fewer bytes on links than five separate ones", _fewer),),
    seeds=3,
)
