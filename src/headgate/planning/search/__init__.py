"""Better plans: search from any construction, with incremental evaluation (beyond the paper)."""

from headgate.planning.search.improve import Improved, Search, improve, usual_steps
from headgate.planning.search.objective import AGGREGATES, Objective, parse_objective

__all__ = ["AGGREGATES", "Improved", "Objective", "Search", "improve", "parse_objective", "usual_steps"]
