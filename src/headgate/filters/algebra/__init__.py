"""The algebra of filters: normal form, covering, intersection, union, simplification. Values in, values out, no I/O."""

from headgate.filters.algebra.bind import bind
from headgate.filters.algebra.box import Box
from headgate.filters.algebra.domain import Domain
from headgate.filters.algebra.keys import order_keys
from headgate.filters.algebra.normal import NormalForm, normal_form
from headgate.filters.algebra.relate import Cover, Measure, covers, intersection, intersects, merge, merge_cover, volume
from headgate.filters.algebra.simplify import simplify

__all__ = [
    "Box",
    "Cover",
    "Domain",
    "Measure",
    "NormalForm",
    "bind",
    "covers",
    "intersection",
    "intersects",
    "merge",
    "merge_cover",
    "normal_form",
    "order_keys",
    "simplify",
    "volume",
]
