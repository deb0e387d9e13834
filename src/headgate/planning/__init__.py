"""Delivery graphs: which site forwards which stream to whom, so that everybody's quality is as high as links allow.

From the QASD paper: the problem and its validity, delay and drop of a graph, the six constructions; beyond it, exact
optima, search and life with changes. Takes numbers and returns plans: no network, no clock, no Spark. Imports `model`,
`filters` and `errors` only.
"""

from headgate.planning.construct import ALGORITHMS, construct
from headgate.planning.deployment import Sizes, problem_of
from headgate.planning.evaluation import Metrics, Prediction, measure, predict
from headgate.planning.graph import Graph
from headgate.planning.interest import InterestPieces, Universe
from headgate.planning.planner import PlanResult, plan_deployment, plan_problem
from headgate.planning.problem import Delays, Flow, Member, Problem, ProblemError, Want
from headgate.planning.validity import Edge, InvalidPlanError, Violation, edges_of, violations

__all__ = [
    "ALGORITHMS",
    "Delays",
    "Edge",
    "Flow",
    "Graph",
    "InterestPieces",
    "InvalidPlanError",
    "Member",
    "Metrics",
    "PlanResult",
    "Prediction",
    "Problem",
    "ProblemError",
    "Sizes",
    "Universe",
    "Violation",
    "Want",
    "construct",
    "edges_of",
    "measure",
    "plan_deployment",
    "plan_problem",
    "predict",
    "problem_of",
    "violations",
]
