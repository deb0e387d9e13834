"""One stream for every region and resolution: DZ expressions, even thinning, the query tree, serving and replication.

Built from "Efficient Support for Multi-Resolution Queries in Global Sensor Networks". May import `model`, `filters`
and `errors`; no Spark, no network, no clock.
"""

from headgate.grid.decompose import Cover, bounded_batch, choose_depths, decompose, decompose_batch, overlaps
from headgate.grid.dzset import DzSet
from headgate.grid.permutation import Interval, gap_bound, line_rank, plane_gap_bound, plane_rank
from headgate.grid.space import DzSpace
from headgate.grid.tree import Candidates, GbdTree, Served
from headgate.grid.words import Word, compact

__all__ = [
    "Candidates",
    "Cover",
    "DzSet",
    "DzSpace",
    "GbdTree",
    "Interval",
    "Served",
    "Word",
    "bounded_batch",
    "choose_depths",
    "compact",
    "decompose",
    "decompose_batch",
    "gap_bound",
    "line_rank",
    "overlaps",
    "plane_gap_bound",
    "plane_rank",
]
