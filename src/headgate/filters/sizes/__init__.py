"""How much of a stream a filter takes: selectivity and amortised size, each with the error of the estimate."""

from headgate.filters.sizes.estimate import Estimate
from headgate.filters.sizes.histogram import Histogram
from headgate.filters.sizes.interest import Interest
from headgate.filters.sizes.reservoir import Reservoir
from headgate.filters.sizes.statistics import StreamStatistics

__all__ = ["Estimate", "Histogram", "Interest", "Reservoir", "StreamStatistics"]
