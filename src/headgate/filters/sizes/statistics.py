"""What is known of a stream's rows: a reservoir and histograms, and the estimates that they allow.

A filter is first evaluated on the reservoir, which is right for any predicate and any correlation between columns. Rare
filters have few hits there: their boxes are then measured on the histograms, which have seen every row. Either way the
answer is kept within what both allow. Histograms know nothing of correlation, so a box over several attributes is
bounded by Fréchet's inequalities, which hold for every correlation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.filters.algebra import intervals
from headgate.filters.algebra.box import Box
from headgate.filters.algebra.domain import Domain
from headgate.filters.algebra.keys import space_of
from headgate.filters.algebra.normal import NormalForm, normal_form
from headgate.filters.algebra.relate import volume
from headgate.filters.evaluate import Scope, evaluate
from headgate.filters.expr import ColumnRef, Expr, StructField
from headgate.filters.profiles.base import Profile, relational
from headgate.filters.render import render
from headgate.filters.sizes.estimate import Estimate, proportion
from headgate.filters.sizes.histogram import ValueHistogram
from headgate.filters.sizes.reservoir import Reservoir
from headgate.filters.types import STRING, is_struct
from headgate.filters.vector import Numbers
from headgate.model import Schema

_ENOUGH = 30  # hits in the reservoir from which its fraction is taken


class StreamStatistics:
    """Statistics of one stream, fed with batches; also the measure of `merge_cover`.

    >>> stats = StreamStatistics(Schema.of({"n": "int"}), np.random.default_rng(1))
    >>> stats.update(pa.record_batch({"n": pa.array(range(1000), pa.int32())}))
    >>> from headgate.filters import parse_filter
    >>> stats.selectivity(parse_filter("n < 250", stats.schema)).value
    0.25
    """

    def __init__(self, schema: Schema, rng: np.random.Generator, capacity: int = 2_000) -> None:
        self.schema = schema
        self.reservoir = Reservoir(capacity, rng)
        self._terms = {
            render(term): term for column in schema.columns for term in _leaves(ColumnRef(column.type, column.name))
        }
        self._histograms = {
            name: ValueHistogram(term.type) for name, term in self._terms.items() if term.type != STRING
        }
        self._strings: dict[str, list[str]] = {}

    @property
    def rows(self) -> int:
        """How many rows were seen."""
        return self.reservoir.seen

    def update(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch."""
        scope = Scope(batch, {})
        for name, histogram in self._histograms.items():
            histogram.update(evaluate(self._terms[name], scope))
        self.reservoir.update(batch)
        self._strings.clear()

    def mass(self, attribute: str, domain: Domain) -> float:
        """The fraction of rows whose attribute lies in the domain."""
        histogram = self._histograms.get(attribute)
        if histogram is not None:
            return histogram.mass(domain)
        return self._string_mass(attribute, domain) if attribute in self._terms else 1.0

    def _string_mass(self, attribute: str, domain: Domain) -> float:
        rows = self.reservoir.rows.num_rows
        if rows == 0:
            return 1.0
        known = self._strings.get(attribute)
        if known is None:
            found = evaluate(self._terms[attribute], Scope(self.reservoir.rows, {})).values
            known = self._strings[attribute] = sorted(pc.drop_null(found).to_pylist())
        hits = rows - len(known) if domain.null else 0
        for low, high in intervals.ranges(domain.cuts):
            hits += (len(known) if high is None else bisect_left(known, high)) - bisect_left(known, low)
        return float(hits / rows)

    def _error(self, attribute: str, domain: Domain) -> float:
        histogram = self._histograms.get(attribute)
        if histogram is not None:
            return histogram.error(domain)
        sampled = proportion(round(self.mass(attribute, domain) * 1_000), 1_000, "")
        rows = max(1, self.reservoir.rows.num_rows)
        return 0.0 if self.reservoir.is_whole else sampled.error * (1_000 / rows) ** 0.5

    def selectivity(self, of: Profile, context: Mapping[str, Any] | None = None) -> Estimate:
        """The fraction of rows that match, with its error."""
        rows = self.reservoir.rows
        hits = int(of.evaluate(rows, context).sum()) if rows.num_rows else 0
        sampled = proportion(hits, rows.num_rows, "reservoir", whole=self.reservoir.is_whole and self.rows > 0)
        if self.reservoir.is_whole:
            return sampled
        equivalent = relational(of)
        form = None if equivalent is None else normal_form(equivalent)
        return self._with_boxes(form, sampled, hits) if form is not None and form.exact else sampled

    def _with_boxes(self, form: NormalForm, sampled: Estimate, hits: int) -> Estimate:
        """The sample's estimate within what the histograms allow, or theirs where the sample has too few hits."""
        bounds = [self._box_bounds(box) for box in form.boxes]
        least = max((each[0] for each in bounds), default=0.0)
        most = min(1.0, sum(each[1] for each in bounds))
        low, high = max(sampled.low, least), min(sampled.high, most)
        if low > high:  # a sample misleads one time in twenty, the histograms saw every row
            low, high = least, most
        value, source = (sampled.value, "reservoir") if hits >= _ENOUGH else (volume(form.boxes, self), "histograms")
        return Estimate(min(high, max(low, value)), low, high, source)

    def _box_bounds(self, box: Box) -> tuple[float, float]:
        """The least and the greatest fraction of rows that a box can hold, whatever the correlation."""
        masses = [(self.mass(name, domain), self._error(name, domain)) for name, domain in box.domains.items()]
        if not masses:
            return 1.0, 1.0
        low = sum(mass - error for mass, error in masses) - (len(masses) - 1)
        return max(0.0, low), min(1.0, *(mass + error for mass, error in masses))

    def row_bytes(
        self,
        select: Iterable[str] | None = None,
        where: Profile | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> Estimate:
        """The mean size of a projected row, of matching rows where the sample has enough of them."""
        rows = self.reservoir.rows
        names = self.schema.names if select is None else tuple(dict.fromkeys(select))
        if rows.num_rows == 0:
            return Estimate(8.0 * len(names), 0.0, float("inf"), "nothing seen yet")
        if where is not None:
            unbound = where.parameters and context is None
            hits = np.ones(rows.num_rows, bool) if unbound else where.evaluate(rows, context or {})
            if hits.sum() >= _ENOUGH:
                rows = rows.filter(pa.array(hits))
        sizes = np.zeros(rows.num_rows)
        for name in names:
            sizes += column_bytes(rows.column(name))
        mean = float(sizes.mean())
        half = 0.0 if self.reservoir.is_whole else 1.96 * float(sizes.std()) / max(1, rows.num_rows) ** 0.5
        return Estimate(mean, max(0.0, mean - half), mean + half, "reservoir")

    def amortised_bytes(
        self, of: Profile, select: Iterable[str] | None = None, context: Mapping[str, Any] | None = None
    ) -> Estimate:
        """Bytes per row of the stream after filter and projection: selectivity times projected row size.

        Section 2.2 of the QASD paper; what a link to this filter costs is the stream's row rate times this.
        """
        return self.selectivity(of, context).times(self.row_bytes(select, of, context))


def _leaves(term: Expr) -> list[Expr]:
    """The attributes of a column: itself, or the scalar fields of a struct at any depth."""
    if is_struct(term.type):
        return [leaf for field in term.type for leaf in _leaves(StructField(field.type, term, field.name))]
    return [term] if space_of(term.type) is not None else []


def column_bytes(array: pa.Array) -> Numbers:
    """Bytes of every value of a column as Arrow stores it, without validity bits.

    >>> column_bytes(pa.array(["ab", None])).tolist()
    [6.0, 4.0]
    """
    kind, rows = array.type, len(array)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return np.asarray(4.0) + np.asarray(pc.fill_null(pc.binary_length(array), 0), np.float64)
    if pa.types.is_struct(kind):
        return np.asarray(np.sum([column_bytes(field) for field in array.flatten()], axis=0))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        entries = [array.keys, array.items] if pa.types.is_map(kind) else [array.values]
        flat = np.sum([column_bytes(entry.slice(offsets[0], offsets[-1] - offsets[0])) for entry in entries], axis=0)
        ends = np.concatenate([[0.0], np.cumsum(flat)])
        found: Numbers = 4.0 + ends[offsets[1:] - offsets[0]] - ends[offsets[:-1] - offsets[0]]
        return found
    return np.full(rows, kind.bit_width / 8 if not pa.types.is_null(kind) else 0.0)
