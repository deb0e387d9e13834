"""What a search makes large: quality by one of its aggregates, bandwidth, fairness; in strict order or by weights."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.errors import nearest
from headgate.planning.kernel.strict import EVENNESS, QUALITY, WIDTH
from headgate.planning.net import ARITHMETIC, CONTRACTS, GEOMETRIC, MINIMUM
from headgate.planning.problem import ProblemError

AGGREGATES = {"quality": GEOMETRIC, "arithmetic": ARITHMETIC, "contracts": CONTRACTS, "minimum": MINIMUM}
COSTS = {"bandwidth": WIDTH, "fairness": EVENNESS}


@dataclass(frozen=True, slots=True)
class Objective:
    """An aggregate of qualities and the weights of what is given up for it.

    `quality` is the paper's geometric mean; `minimum` is approached by a power mean that the worst dominates. The
    weight of bandwidth is in mean log quality per total bandwidth of BRUSH, that of fairness per unit of its variance.
    With an `order` the weights only guide the search; what counts is the order, each aim only where all before it are
    equal to a part of 1e-9.
    """

    aggregate: str = "quality"
    quality: float = 1.0
    bandwidth: float = 0.02
    fairness: float = 0.0001
    order: tuple[str, ...] = ()

    @property
    def goal(self) -> int:
        """The code that the kernels know the aggregate by."""
        return AGGREGATES[self.aggregate]

    @property
    def codes(self) -> tuple[int, ...]:
        """The order as the kernels know it."""
        return tuple(COSTS.get(name, QUALITY) for name in self.order)


def parse_objective(text: str) -> Objective:
    """An objective from names in order of importance (strictly so), or with weights.

    >>> parse_objective("quality, bandwidth").order
    ('quality', 'bandwidth')
    >>> parse_objective("contracts=1, bandwidth=0.2")
    Objective(aggregate='contracts', quality=1.0, bandwidth=0.2, fairness=0.0, order=())
    """
    aggregate, weights = "", {"bandwidth": 0.0, "fairness": 0.0}
    quality, after = 0.0, 1.0
    order: list[str] = []
    for part in text.split(","):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        known = (*AGGREGATES, *COSTS)
        if name not in known:
            close = nearest(name, known)
            hint = f"did you mean {close!r}?" if close else f"known: {', '.join(known)}"
            raise ProblemError(f"no objective {name!r}", hint=hint)
        if name in order:
            raise ProblemError(f"the objective {name!r} is given twice", hint="name each once")
        order.append(name)
        try:
            weight = float(number) if equals else after
        except ValueError:
            raise ProblemError(f"the weight {number!r} of {name!r} is no number") from None
        after = weight * (0.02 if name in AGGREGATES else 0.005)
        if name in COSTS:
            weights[name] = weight
        elif aggregate:
            raise ProblemError(f"{aggregate!r} and {name!r} are both aggregates of quality", hint="give one of them")
        else:
            aggregate, quality = name, weight
    strict = () if "=" in text else tuple(order)
    return Objective(aggregate or "quality", quality, weights["bandwidth"], weights["fairness"], strict)
