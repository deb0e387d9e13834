"""What every generator is: a schema, options with defaults, and a pure function of a range of row numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.model import Schema

Rows = NDArray[np.int64]
"""Row numbers of a stream, from 0."""

Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Generator:
    """A generator of one kind.

    `columns(seed, rows, options)` gives every column but the time. `group(options)` is how many consecutive rows share
    one time and appear together (a whole step of a grid); `options` maps the kind's own options to their defaults,
    which are positive whole numbers.
    """

    kind: str
    about: str
    schema: Schema
    key: tuple[str, ...]
    options: Mapping[str, int]
    columns: Callable[[int, Rows, Options], Mapping[str, pa.Array]]
    group: Callable[[Options], int] = lambda _: 1


def labels(names: list[str], index: NDArray[np.int64]) -> pa.Array:
    """A string column from an index into few names."""
    return pa.array(names, pa.string()).take(pa.array(index))


def numbered(prefix: str, count: int) -> list[str]:
    """Names of equal length, so that they sort by number.

    >>> numbered("v", 11)[-2:]
    ['v09', 'v10']
    """
    width = len(str(count - 1))
    return [f"{prefix}{number:0{width}d}" for number in range(count)]
