"""Transformation state (XPORT, Table 4): what a site must hold of its dependents to price a change above them.

A state describes a set of sites below some site k *relative to k*: the aggregates h_j of local values between k and
each j. It is built from the bottom up (`single`, `union`, `extend`), travels to the parent in one message, and gives
the dependents' cost for any cost of k (`settle`). One algebra per class of system function:

| system function | node function | state | size |
|---|---|---|---|
| additive | sum | sites counted, sum of h | O(1) |
| additive | min, max | counts by distinct h (the paper's T_i) | O(distinct) |
| additive | average | count and sum by depth | O(height) |
| bottleneck | sum, min, max | one extreme h | O(1) |
| bottleneck | average | one extreme by depth | O(height) |
| holistic, percentile, several metrics | any | one row a site | O(sites) |
"""

from headgate.tuning.states.additive import Additive
from headgate.tuning.states.algebra import Algebra, Prefix, advance, algebra_for, start
from headgate.tuning.states.extreme import Extreme
from headgate.tuning.states.rows import Rows

__all__ = ["Additive", "Algebra", "Extreme", "Prefix", "Rows", "advance", "algebra_for", "start"]
