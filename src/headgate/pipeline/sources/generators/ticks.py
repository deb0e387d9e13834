"""`ticks`: trades on several venues, with a map, a struct and nulls, so that nested types are used in earnest."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headgate.model import Column, Schema, parse_type
from headgate.pipeline.sources.generators.base import Generator, Options, Rows, labels
from headgate.pipeline.sources.generators.noise import choice, normal, uniform

_VENUES = ["ARCA", "BATS", "LSE", "XETRA"]
_SIDES = ["buy", "sell"]
_CONDITIONS = ["regular", "odd-lot", "auction", "late"]
_ATTRIBUTES = parse_type("map<string,string>")
_QUOTE = parse_type("struct<bid:double,ask:double,depth:int>")


def columns(seed: int, rows: Rows, options: Options) -> Mapping[str, pa.Array]:
    """A symbol is drawn a row, the first ones more often; its price is a sum of slow waves and a little noise."""
    count = int(options["symbols"])
    symbol = (count * uniform(seed, 1, rows) ** 2.5).astype(np.int64)
    level = np.exp(1.5 + 4.5 * uniform(seed, 2, symbol))
    wave = np.zeros(len(rows))
    for lane, period in enumerate((700.0, 4_300.0, 21_000.0)):
        wave += 0.02 * np.sin(2.0 * np.pi * (rows / period + uniform(seed, 3 + lane, symbol)))
    price = np.round(level * np.exp(wave + 0.002 * normal(seed, 6, rows)), 2)
    half = np.maximum(0.01, np.round(price * 0.0005 * (1.0 + uniform(seed, 7, rows)), 2))
    # One trade in fifty has no quote.
    unquoted = uniform(seed, 8, rows) < 0.02
    quote = pa.StructArray.from_arrays(
        [
            pa.array(np.round(price - half, 2)),
            pa.array(np.round(price + half, 2)),
            pa.array(100 * (1 + choice(seed, 9, rows, 50)).astype(np.int32)),
        ],
        fields=list(_QUOTE),
        mask=pa.array(unquoted),
    )
    return {
        "symbol": labels(_symbols(count), symbol),
        "price": pa.array(price),
        "size": pa.array(np.maximum(1, np.rint(100.0 * np.exp(normal(seed, 10, rows)))).astype(np.int32)),
        "venue": labels(_VENUES, choice(seed, 11, rows, len(_VENUES))),
        "attributes": _attributes(seed, rows),
        "quote": quote,
    }


def _symbols(count: int) -> list[str]:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return [letters[number // 676 % 26] + letters[number // 26 % 26] + letters[number % 26] for number in range(count)]


def _attributes(seed: int, rows: Rows) -> pa.Array:
    """The side always, a condition for one trade in four."""
    flagged = uniform(seed, 12, rows) < 0.25
    ends = np.concatenate([[0], np.cumsum(1 + flagged.astype(np.int64))])
    keys = np.zeros(ends[-1], np.int64)
    keys[ends[:-1][flagged] + 1] = 1
    values = np.empty(ends[-1], np.int64)
    values[ends[:-1]] = choice(seed, 13, rows, len(_SIDES))
    values[ends[:-1][flagged] + 1] = len(_SIDES) + choice(seed, 14, rows[flagged], len(_CONDITIONS))
    return pa.MapArray.from_arrays(
        pa.array(ends.astype(np.int32)),
        labels(["side", "condition"], keys),
        labels(_SIDES + _CONDITIONS, values),
        type=_ATTRIBUTES,
    )


TICKS = Generator(
    kind="ticks",
    about="trades with a map of attributes and a nested quote",
    schema=Schema(
        (
            Column("symbol", parse_type("string")),
            Column("price", parse_type("double"), "EUR"),
            Column("size", parse_type("int")),
            Column("venue", parse_type("string")),
            Column("attributes", _ATTRIBUTES),
            Column("quote", _QUOTE),
            Column("at", parse_type("timestamp")),
        )
    ),
    key=("symbol",),
    options={"symbols": 100},
    columns=columns,
)
