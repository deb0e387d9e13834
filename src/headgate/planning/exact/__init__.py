"""Optima of small problems with proof: the oracle for the heuristics and the search."""

from headgate.planning.exact.bandwidth import BandwidthOptimum, least_bandwidth
from headgate.planning.exact.quality import QualityOptimum, best_quality

__all__ = ["BandwidthOptimum", "QualityOptimum", "best_quality", "least_bandwidth"]
