"""Rows full of values that break filters: nulls, NaN, infinities, -0.0, extreme integers, astral characters."""

import datetime as dt
import random
from decimal import Decimal

import pyarrow as pa

from headgate.model import Schema

SCHEMA = Schema.of(
    {
        "flag": "boolean",
        "tiny": "tinyint",
        "small": "smallint",
        "i": "int",
        "j": "int",
        "big": "bigint",
        "f": "float",
        "x": "double",
        "y": "double",
        "price": "decimal(9,2)",
        "huge": "decimal(38,10)",
        "name": "string",
        "city": "string",
        "day": "date",
        "at": "timestamp",
        "till": "timestamp",
        "tags": "array<string>",
        "readings": "array<double>",
        "counts": "array<int>",
        "limits": "map<string,double>",
        "place": "struct<lat:double,lon:double,label:string>",
    }
)
CONTEXT = {"bound": 2.5, "most": 7, "word": "Öl", "watch": ["a", "", "Zürich", None], "position": [1.0, -2.0]}

TEXTS = [
    "",
    " ",
    "a",
    "A",
    "abc",
    "a%b",
    "a_b",
    "Zürich",
    "straße",
    "ΑΣ",
    "İstanbul",
    "日本",
    "😀x",
    "a\nb",
    "a\\b",
    "'q'",
    "z" * 40,
]
DOUBLES = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    2.5,
    2.675,
    0.1,
    1e-300,
    1e300,
    2.0**63,
    -(2.0**63),
    float("nan"),
    float("inf"),
    float("-inf"),
    1e15 + 0.5,
    123456.789,
]
UTC = dt.UTC


def _integers(bits):
    top = 2 ** (bits - 1)
    return [0, 1, -1, 2, 3, 5, 7, 10, -10, 25, top - 1, -top, top // 2, -top // 2 + 1]


_POOLS = {
    "flag": [True, False],
    "tiny": _integers(8),
    "small": _integers(16),
    "i": _integers(32),
    "j": _integers(32),
    "big": _integers(64),
    "f": [0.0, -0.0, 1.5, -2.25, 0.1, 3e38, float("nan"), float("inf")],
    "x": DOUBLES,
    "y": DOUBLES,
    "price": [Decimal(text) for text in ("0.00", "1.50", "-1.50", "9999999.99", "0.01", "2.50", "-0.05")],
    "huge": [
        Decimal(text)
        for text in ("0", "1.5", "-2.0000000001", "9" * 24 + ".9999999999", "-" + "9" * 24, "0.0000000001")
    ],
    "name": TEXTS,
    "city": TEXTS,
    "day": [
        dt.date(1970, 1, 1),
        dt.date(2024, 2, 29),
        dt.date(1900, 3, 1),
        dt.date(2026, 12, 31),
        dt.date(1582, 10, 15),
        dt.date(2020, 1, 31),
    ],
    "at": [
        dt.datetime(1970, 1, 1, tzinfo=UTC),
        dt.datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC),
        dt.datetime(1969, 12, 31, 23, 0, 0, 1, tzinfo=UTC),
        dt.datetime(2026, 1, 31, 12, 30, tzinfo=UTC),
    ],
    "till": [
        dt.datetime(1970, 1, 1, tzinfo=UTC),
        dt.datetime(2024, 3, 1, tzinfo=UTC),
        dt.datetime(2020, 12, 31, 7, 8, 9, tzinfo=UTC),
    ],
}


def table(seed: int, rows: int) -> pa.RecordBatch:
    """A seeded batch of nasty rows."""
    rng = random.Random(seed)

    def one(pool, null=0.15):
        return None if rng.random() < null else rng.choice(pool)

    columns = {name: [one(pool) for _ in range(rows)] for name, pool in _POOLS.items()}

    def some(pool):
        return None if rng.random() < 0.1 else [one(pool) for _ in range(rng.randrange(5))]

    columns["tags"] = [some(TEXTS) for _ in range(rows)]
    columns["readings"] = [some(DOUBLES) for _ in range(rows)]
    columns["counts"] = [some([0, 1, 2, 3]) for _ in range(rows)]
    columns["limits"] = [
        None
        if rng.random() < 0.1
        else [(key, one(DOUBLES)) for key in rng.sample(["low", "high", ""], rng.randrange(4))]
        for _ in range(rows)
    ]
    columns["place"] = [
        None
        if rng.random() < 0.1
        else {"lat": one([10.0, -45.5, 89.9]), "lon": one([0.0, 179.9, -120.0]), "label": one(TEXTS)}
        for _ in range(rows)
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[column.name], column.type) for column in SCHEMA.columns], schema=SCHEMA.arrow
    )
