"""The front end that the paper asks for (section 6): from a declared requirement to the method that fits it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from headgate.matching.admission.batching import ORDERS, Batching, Order
from headgate.matching.admission.hybrid import Hybrid
from headgate.matching.admission.method import Method
from headgate.matching.admission.shed_both import ShedBoth
from headgate.matching.admission.shed_messages import ShedMessages
from headgate.matching.admission.shed_updates import ShedUpdates
from headgate.matching.admission.shedding import Shedder
from headgate.matching.admission.traditional_adaptive import TraditionalAdaptive
from headgate.matching.admission.traditional_eager import TraditionalEager
from headgate.matching.index import MatchingError

METHODS: Mapping[str, Callable[[float, int], Method]] = MappingProxyType(
    {
        "traditional eager": lambda bound_s, seed: TraditionalEager(),  # noqa: ARG005 (one signature for all)
        "traditional adaptive": lambda bound_s, seed: TraditionalAdaptive(),  # noqa: ARG005 (as above)
        "shed messages": lambda bound_s, seed: ShedMessages(Shedder(bound_s, seed)),
        "shed updates": lambda bound_s, seed: ShedUpdates(Shedder(bound_s, seed)),
        "shed both": lambda bound_s, seed: ShedBoth(Shedder(bound_s, seed)),
        **{
            f"batching ({order})": lambda bound_s, seed, order=order: Batching(order)  # type: ignore[misc]  # noqa: ARG005 (a default binds it)
            for order in ORDERS
        },
        "hybrid": lambda bound_s, seed: Hybrid(Shedder(bound_s, seed)),
    }
)
"""Every method by name, from a latency bound and a seed."""


def make_method(name: str, bound_s: float, seed: int = 0) -> Method:
    """The method of that name."""
    if name not in METHODS:
        raise MatchingError(f"no method {name!r}", hint="methods are " + ", ".join(METHODS))
    return METHODS[name](bound_s, seed)


@dataclass(frozen=True, slots=True)
class Requirement:
    """What delivery must keep to under overload.

    `bound_s` None: latency does not matter. `false_negatives` and `false_positives` say whether some are tolerated, the
    former also as the share of matches that may be missed (`headgate.matching.admission.tolerance`);
    `lasting` whether errors may outlive the burst; `state` which state a late message is matched with.
    """

    bound_s: float | None = None
    false_negatives: bool | float = False
    false_positives: bool = False
    lasting: bool = False
    state: Order = "arrival"


def choose(need: Requirement, seed: int = 0) -> Method:
    """The method that keeps what is required and gives up the least else.

    Without a bound nothing need be given up: in order, adapting. With one and no errors allowed, only speed can help:
    alternating runs. Errors of both kinds within a batch allow batching, and with a bound the hybrid; lost messages
    alone allow shedding messages; errors that last allow shedding updates too.

    >>> choose(PRESETS["sports results"]).name
    'shed messages'
    """
    if need.bound_s is None:
        return TraditionalAdaptive()
    if not need.false_negatives:
        return Batching("arrival")
    if not need.false_positives:
        return ShedMessages(Shedder(need.bound_s, seed))
    if need.lasting:
        return ShedBoth(Shedder(need.bound_s, seed), messages_share=0.0)
    order: Order = need.state if need.state != "arrival" else "updates first"
    return Hybrid(Shedder(need.bound_s, seed), order)


PRESETS: Mapping[str, Requirement] = MappingProxyType(
    {
        "e-science": Requirement(),
        "sports results": Requirement(bound_s=5.0, false_negatives=True),
        "location based service": Requirement(
            bound_s=5.0, false_negatives=True, false_positives=True, state="updates first"
        ),
        "load balancing": Requirement(
            bound_s=5.0, false_negatives=True, false_positives=True, lasting=True, state="messages first"
        ),
    }
)
"""The paper's four scenarios (section 2.2)."""


def requirement_of(document: Mapping[str, Any]) -> Requirement:
    """The requirement that a deployment file declares: a preset, and what is said beside it.

    >>> requirement_of({"preset": "load balancing", "bound": 1.0}).bound_s
    1.0
    """
    given = {key: value for key, value in document.items() if key not in ("preset", "bound")}
    if "bound" in document:
        given["bound_s"] = document["bound"]
    if "preset" in document and document["preset"] not in PRESETS:
        raise MatchingError(f"no scenario {document['preset']!r}", hint="scenarios are " + ", ".join(PRESETS))
    return replace(PRESETS[document["preset"]] if "preset" in document else Requirement(), **given)
