"""Who asks for something: the same value for every face of a deployment, be it NATS, HTTP or the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OPERATOR: Final = "operator"


@dataclass(frozen=True, slots=True)
class Caller:
    """A name, what it may do, and where it asks from.

    An `operator` may do everything. `connection` tells the programs of one name apart; `origin` is for people.
    """

    name: str
    role: str
    connection: str = ""
    origin: str = ""

    @property
    def is_operator(self) -> bool:
        """Whether everything is allowed."""
        return self.role == OPERATOR

    @property
    def flow(self) -> str:
        """What requests are counted by: for a name, whatever its connections; for operators by connection.

        Somebody who is limited could open any number of connections. Operators, who share one name, are not held up
        by each other's programs.
        """
        return f"{self.name}/{self.connection}" if self.is_operator else self.name


OPERATION: Final = Caller(OPERATOR, OPERATOR)
"""An operator whose program is not known."""
