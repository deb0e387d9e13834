"""Regions and resolutions as a profile type: `profile: grid`, with the grid itself in the text.

`{"grid": {"x": {...}, "y": {...}}, "region": {"box": [...]}, "resolution": {"space": "1/4"}}` is the `grid:` document
of a stream with the `region` and `resolution` of a subscription, as JSON: it serves streams that have no grid of their
own, and subscribers that lay another grid over one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.filters import FilterError
from headgate.filters.profiles.base import DefaultProfileType, Profile, parts_of
from headgate.grid.layout import layout_of
from headgate.grid.predicate import GridPredicate, grid_predicate
from headgate.grid.shape import ShapeFactory
from headgate.model import Schema, Source, Stream, Subscription

_KEYS = ("grid", "region", "resolution")


@dataclass(frozen=True)
class GridProfile:
    """A region and a resolution on the grid that `grid` describes."""

    text: str
    grid: str
    predicate: GridPredicate

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it reads."""
        return self.predicate.columns

    @property
    def parameters(self) -> frozenset[str]:
        """The names of the context that the region is bound to."""
        return self.predicate.parameters

    def evaluate(self, batch: pa.RecordBatch, context: Mapping[str, Any] | None = None) -> npt.NDArray[np.bool_]:
        """For each row whether it lies in the region and is of the resolution."""
        return self.predicate.evaluate(batch, context or {})


class GridProfiles(DefaultProfileType):
    """Regions and resolutions."""

    name: ClassVar[str] = "grid"

    def compile(self, where: str, schema: Schema, context: Mapping[str, pa.DataType]) -> GridProfile:
        """The profile; what is wrong with the documents is said as for a stream and a subscription."""
        try:
            document = json.loads(where)
        except json.JSONDecodeError as error:
            raise FilterError(f"this is not JSON: {error.msg}", where, error.pos, hint=_HINT) from None
        if not isinstance(document, dict) or "grid" not in document or len(document) < 2:
            raise FilterError("a grid with a region or a resolution was expected", where, 0, hint=_HINT)
        for key in document:
            if key not in _KEYS:
                place = max(0, where.find(json.dumps(key)))
                raise FilterError(f"unknown key {key!r}", where, place, hint="keys are " + ", ".join(_KEYS))
        stream = Stream("grid", schema, Source("none"), "", options={"grid": document["grid"]})
        shaped = Subscription("", "grid", "", region=document.get("region"), resolution=document.get("resolution"))
        try:
            predicate = grid_predicate(shaped, stream, layout=layout_of(stream))
        except (HeadgateError, TypeError) as error:
            reason = error.message if isinstance(error, HeadgateError) else str(error)
            raise FilterError(reason, where, 0, hint=getattr(error, "hint", None) or _HINT) from None
        assert predicate is not None
        missing = predicate.parameters - set(context)
        if missing:
            raise FilterError(f"unknown context value ${min(missing)}", where, 0, hint="give it in `context`")
        grid = json.dumps(document["grid"], sort_keys=True)
        return GridProfile(json.dumps(document, sort_keys=True), grid, predicate)

    def covers(self, one: Profile, other: Profile) -> bool:
        """Every part of the other lies in a part of this one: surely, by the cells of both shapes."""
        return all(any(_covers(mine, theirs) for mine in parts_of(one)) for theirs in parts_of(other))


def _covers(one: Profile, other: Profile) -> bool:
    if one.text == other.text:
        return True
    if not isinstance(one, GridProfile) or not isinstance(other, GridProfile) or one.grid != other.grid:
        return False
    if one.parameters or other.parameters:
        return False
    shapes = ShapeFactory(one.predicate.layout)
    mine, theirs = (shapes.shape(each.predicate.region, each.predicate.resolution) for each in (one, other))
    return mine.covers(theirs)


_HINT = '{"grid": {"x": ..., "y": ...}, "region": ..., "resolution": ...} as JSON'
PROFILE = GridProfiles()
