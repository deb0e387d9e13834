"""Which share of a stream's rows a subscription matches, by rows that were drawn at random before matching."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from headgate.fabric import Fabric
from headgate.model import Stream, Subscription
from headgate.protocol.reports import SampleReport
from headgate.service.previewing import matching
from headgate.wire.frame import WireError
from headgate.wire.row_sample import RowSample, decode_sample

_SURE: Final = 1.96  # standard deviations of a 95 % interval


@dataclass(frozen=True, slots=True)
class SampledShare:
    """A share that was seen among sampled rows; `at_least` and `at_most` are the ends of a 95 % interval."""

    share: float
    at_least: float
    at_most: float
    matched: int
    rows: int


async def read_sample(fabric: Fabric, stream: Stream) -> RowSample | None:
    """The newest rows that were drawn from a stream; none before its first batch, or where they have other columns."""
    stored = await fabric.last(fabric.logs.state, fabric.logs.stats("sample", stream.name))
    found = None if stored is None else fabric.quarantine.take(fabric.logs.state, stored, SampleReport.decode, "none")
    try:
        sample = None if found is None else decode_sample(found.data)
    except WireError:
        return None
    return sample if sample is not None and sample.rows.schema.equals(stream.schema.arrow) else None


def sampled_share(subscription: Subscription, stream: Stream, sample: RowSample | None) -> SampledShare | None:
    """The share that a subscription would match, None where nothing was drawn."""
    if sample is None or not sample.rows.num_rows:
        return None
    mask = matching(subscription, stream, sample.rows)
    share = float(sample.weights[mask].sum() / sample.weights.sum())
    # Rows that stand for more of the stream than others make a sample worth fewer rows.
    worth = float(sample.weights.sum() ** 2 / (sample.weights**2).sum())
    return SampledShare(share, *interval(share, worth), int(np.count_nonzero(mask)), sample.rows.num_rows)


def interval(share: float, rows: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share that was seen among so many sampled rows.

    >>> [round(each, 3) for each in interval(0.5, 100)]
    [0.404, 0.596]
    >>> interval(0.0, 100)[0], interval(1.0, 100)[1]
    (0.0, 1.0)
    """
    spread = _SURE**2 / rows
    middle = (share + spread / 2) / (1 + spread)
    half = _SURE / (1 + spread) * math.sqrt(share * (1 - share) / rows + spread / (4 * rows))
    return max(0.0, middle - half if share else 0.0), min(1.0, middle + half if share < 1 else 1.0)
