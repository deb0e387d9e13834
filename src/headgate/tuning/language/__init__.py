"""The objective language: the paper's cost grammar (XPORT, figure 1) as text and as data."""

from headgate.tuning.language.data import (
    constraint_from_data,
    constraint_to_data,
    objective_from_data,
    objective_to_data,
)
from headgate.tuning.language.errors import ObjectiveError
from headgate.tuning.language.gallery import GALLERY, Example
from headgate.tuning.language.parser import parse_constraint, parse_objective
from headgate.tuning.language.syntax import (
    Binary,
    Constraint,
    Expression,
    FunctionCall,
    Name,
    NodeAggregate,
    Number,
    SystemObjective,
)
from headgate.tuning.language.vocabulary import Vocabulary

__all__ = [
    "GALLERY",
    "Binary",
    "Constraint",
    "Example",
    "Expression",
    "FunctionCall",
    "Name",
    "NodeAggregate",
    "Number",
    "ObjectiveError",
    "SystemObjective",
    "Vocabulary",
    "constraint_from_data",
    "constraint_to_data",
    "objective_from_data",
    "objective_to_data",
    "parse_constraint",
    "parse_objective",
]
