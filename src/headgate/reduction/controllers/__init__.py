"""Controllers: which level a pack uses."""

from headgate.reduction.controllers.base import Controller, Pressure
from headgate.reduction.controllers.deficit import Deficit
from headgate.reduction.controllers.ladder import Ladder

__all__ = ["Controller", "Deficit", "Ladder", "Pressure", "make_controller"]


def make_controller(name: str, headroom: float) -> Controller:
    """A fresh controller of that name."""
    return Ladder(headroom) if name == "ladder" else Deficit(headroom)
