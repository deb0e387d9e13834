"""One stream for every region and resolution: DZ expressions, even thinning, the query tree, serving and replication.

Built from "Efficient Support for Multi-Resolution Queries in Global Sensor Networks". May import `model`, `filters`
and `errors`; no Spark, no network, no clock.
"""

from headgate.grid.axis import Axis
from headgate.grid.bounds import place_schema, with_places
from headgate.grid.decompose import DzCover, bounded_batch, choose_depths, decompose, decompose_batch, overlaps
from headgate.grid.dzset import DzSet
from headgate.grid.errors import GridError
from headgate.grid.field import Field
from headgate.grid.layout import GridLayout, layout_of, parse_layout
from headgate.grid.permutation import Interval, gap_bound, line_rank, plane_gap_bound, plane_rank
from headgate.grid.predicate import Both, GridPredicate, grid_predicate, with_grid
from headgate.grid.region import BoxRegion, Circle, Polygon, Region, parse_region
from headgate.grid.resolution import Resolution, parse_resolution
from headgate.grid.shape import GridShape, ShapeFactory, grid_shape, shape_space
from headgate.grid.space import DzSpace
from headgate.grid.tree import Candidates, GbdTree, Served
from headgate.grid.words import Word, compact

__all__ = [
    "Axis",
    "Both",
    "BoxRegion",
    "Candidates",
    "Circle",
    "DzCover",
    "DzSet",
    "DzSpace",
    "Field",
    "GbdTree",
    "GridError",
    "GridLayout",
    "GridPredicate",
    "GridShape",
    "Interval",
    "Polygon",
    "Region",
    "Resolution",
    "Served",
    "ShapeFactory",
    "Word",
    "bounded_batch",
    "choose_depths",
    "compact",
    "decompose",
    "decompose_batch",
    "gap_bound",
    "grid_predicate",
    "grid_shape",
    "layout_of",
    "line_rank",
    "overlaps",
    "parse_layout",
    "parse_region",
    "parse_resolution",
    "place_schema",
    "plane_gap_bound",
    "plane_rank",
    "shape_space",
    "with_grid",
    "with_places",
]
