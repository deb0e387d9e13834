"""The adviser: what each level of a policy would drop of recorded rows, which level a target needs, and a better order.

Rows are looked at in windows of a queue's length, because that is what a pack sees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import HeadgateError
from headgate.model import Schema, parse_rate
from headgate.reduction.automatic import USELESS, propose
from headgate.reduction.filters import Moment
from headgate.reduction.parse import parse_policy
from headgate.reduction.policy import Level, Policy
from headgate.reduction.reader import is_number
from headgate.reduction.rows import Floats, numbers


@dataclass(frozen=True, slots=True)
class LevelAdvice:
    """One level: what it drops alone, and what it and the levels before it drop together, as fractions of the rows."""

    number: int
    label: str
    alone: float
    together: float
    verdict: str


@dataclass(frozen=True, slots=True)
class Advice:
    """Levels as written and in the proposed order; `reaches` is the first level that gets down to the target."""

    rows: int
    target: float
    levels: tuple[LevelAdvice, ...]
    reaches: int | None
    order: tuple[int, ...]
    proposed: tuple[LevelAdvice, ...]
    proposed_reaches: int | None


def advise(policy: Policy, rows: pa.RecordBatch, target: float, window: int = 1000) -> Advice:
    """Judge a policy on recorded rows; `target` is the fraction of them that may be kept."""
    levels = policy.levels
    alone = [_dropped([level], rows, window)[-1] for level in levels]
    given = _dropped(list(levels), rows, window)
    order = propose(levels, alone)
    better = _dropped([levels[index] for index in order], rows, window)
    identity = tuple(range(len(levels)))
    return Advice(
        rows.num_rows,
        target,
        _table(levels, identity, alone, given),
        _reaches(given, target),
        order,
        _table(levels, order, alone, better),
        _reaches(better, target),
    )


def kept_share(target: float | str, rate_rows_per_s: float | None) -> float:
    """The fraction of rows that may stay, for a target that is a fraction or a rate.

    >>> kept_share(0.3, None), kept_share("50/s", 200.0), kept_share("500/s", 200.0)
    (0.3, 0.25, 1.0)
    """
    if isinstance(target, str) and "/" in target:
        if not rate_rows_per_s:
            raise HeadgateError(
                f"{target!r} is a rate, and how fast the rows come is not known",
                hint="give a fraction such as 0.3, or --rate 200/s",
            )
        return min(1.0, parse_rate(target) / rate_rows_per_s)
    try:
        fraction = float(target)
    except ValueError:
        fraction = -1.0
    if not 0 < fraction <= 1:
        raise HeadgateError(f"{target!r} is no target", hint="a fraction such as 0.3, or a rate such as 50/s")
    return fraction


def _dropped(levels: list[Level], rows: pa.RecordBatch, window: int) -> Floats:
    """The fraction of all rows that is gone after each of the levels, applied one after the other."""
    left = np.zeros(len(levels))
    for start in range(0, rows.num_rows, window):
        current = rows.slice(start, window)
        positions = np.arange(current.num_rows, dtype=np.uint64) + np.uint64(start + 1)
        for index, level in enumerate(levels):
            for found in level.filters:
                moment = Moment.of(current, first=start + 1, round_=index)
                moment = Moment(
                    moment.now,
                    index,
                    positions,
                    moment.arrived,
                    moment.weights,
                    moment.sizes,
                    need_rows=0.1 * current.num_rows,
                )
                mask, _ = found.keep(current, None, moment)
                positions = positions[mask]
                current = current.filter(pa.array(mask))
            left[index] += current.num_rows
    fractions: Floats = 1.0 - left / max(1, rows.num_rows)
    return fractions


def _table(
    levels: tuple[Level, ...], order: tuple[int, ...], alone: list[float], together: Floats
) -> tuple[LevelAdvice, ...]:
    found = []
    before = 0.0
    for place, index in enumerate(order):
        if alone[index] < USELESS:
            verdict = "frees almost nothing"
        elif together[place] - before < USELESS:
            verdict = "adds nothing to the levels before it"
        elif alone[index] > 0.9:
            verdict = "drops nearly everything"
        else:
            verdict = "helps"
        found.append(LevelAdvice(index + 1, levels[index].label, alone[index], float(together[place]), verdict))
        before = float(together[place])
    return tuple(found)


def _reaches(together: Floats, target: float) -> int | None:
    enough = np.flatnonzero(1.0 - together <= target + 1e-9)
    return int(enough[0]) + 1 if len(enough) else None


def candidates(schema: Schema, rows: pa.RecordBatch, key: str | None = None) -> Policy:
    """A policy to start from when there is none: levels that suit the columns, from gentle to hard."""
    levels: list[dict[str, object]] = []
    keyed: dict[str, object] = {"key": key} if key else {}
    for column in schema.columns:
        if is_number(column.type) and column.name != key:
            spread = float(np.nanstd(numbers(rows.column(column.name)))) if rows.num_rows else 0.0
            if np.isfinite(spread) and spread > 0:
                change = float(f"{spread / 2:.2g}")
                levels.append({"delta": {"attribute": column.name, "change": change, **keyed}})
        if pa.types.is_boolean(column.type):
            levels.append({"keep": {"eq": True, "attribute": column.name}})
    times = [column.name for column in schema.columns if pa.types.is_timestamp(column.type)]
    if len(times) == 1 and rows.num_rows:
        ends = pc.min_max(rows.column(times[0])).as_py()
        step = (ends["max"] - ends["min"]).total_seconds() / max(1, rows.num_rows) * 10
        if step > 0:
            levels.append({"thin_time": {"step": f"{step:.3g} s", **keyed}})
    if key:
        levels.append({"conflate": key})
    return parse_policy({"levels": [*levels, {"every": 2}, {"random": 0.5}]}, schema)
