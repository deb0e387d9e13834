"""Group subscriptions: how the rows of one subscription are dealt out to its members, each row to one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

ROUND_ROBIN: Final = "round-robin"
LEASE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class GroupRule:
    """How a group subscription deals its rows to its members.

    `deal` is `round-robin`, or an expression over the row's columns and the members' values (`$name`): the row goes to
    the member for which it is largest. `context` has the values that a member has unless it says otherwise; only names
    that stand here can be used. `lease_s` is how long a member may take to acknowledge a row, after which the row goes
    to another one.
    """

    deal: str = ROUND_ROBIN
    lease_s: float = LEASE_S
    context: Mapping[str, Any] = field(default_factory=dict)
