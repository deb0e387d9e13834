"""How much of a stream a filter takes: selectivity and amortised size, each with the error of the estimate."""

from headgate.filters.sizes.estimate import Estimate
from headgate.filters.sizes.histogram import ValueHistogram
from headgate.filters.sizes.interest import SizedInterest
from headgate.filters.sizes.reservoir import Reservoir
from headgate.filters.sizes.statistics import StreamStatistics

__all__ = ["Estimate", "Reservoir", "SizedInterest", "StreamStatistics", "ValueHistogram"]
