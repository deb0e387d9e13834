"""What a study is: a grid of parameters, seeds, a pure function of one row, a chart, and statements that it judges."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.errors import HeadgateError, nearest

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Parameters = Mapping[str, Any]
Row = Mapping[str, Any]

REPRODUCES = "reproduces"
PARTLY = "in part"
FAILS = "does not reproduce"
"""The verdicts. A study that does not reproduce a statement says so; it is never bent until it agrees."""


class StudyError(HeadgateError):
    """A study that does not exist, a parameter that it does not have, or a row that failed."""


class Statement(NamedTuple):
    """What a paper (or our own design) states, and what our results say about it.

    `judge` takes all results as a pandas frame and gives our figure in words and one of the verdicts.
    """

    claim: str
    judge: Callable[[pd.DataFrame], tuple[str, str]]


@dataclass(frozen=True)
class Study:
    """A declared experiment.

    `parameters` is a grid (each name with its values, crossed) or a list of parameter sets. `run(parameters, seed)` is
    a pure function that gives one row of results, or several; it runs in a Spark worker, so it and all that it needs
    must be importable there. `live` studies measure time or a running system: they run alone, one after another, in
    this process. `seeds` is how many seeds a full run takes, from 0; `most_seeds` bounds them for sets of parameters
    of which one run takes long.
    """

    name: str
    about: str
    parameters: Mapping[str, Sequence[Any]] | Sequence[Parameters]
    run: Callable[[Parameters, int], Row | Sequence[Row]]
    chart: Callable[[pd.DataFrame], Figure]
    statements: Sequence[Statement] = ()
    summary: Callable[[pd.DataFrame], Mapping[str, Any]] | None = None
    seeds: int = 20
    live: bool = False
    paper: str | None = None
    notes: str = ""
    tags: tuple[str, ...] = field(default=())
    most_seeds: Callable[[Parameters], int | None] | None = None

    def cases(self) -> list[dict[str, Any]]:
        """Every set of parameters, in the order of the declaration.

        >>> Study("s", "", {"n": [1, 2], "m": ["a"]}, dict, dict).cases()
        [{'n': 1, 'm': 'a'}, {'n': 2, 'm': 'a'}]
        """
        if isinstance(self.parameters, Mapping):
            names = list(self.parameters)
            return [dict(zip(names, values, strict=True)) for values in itertools.product(*self.parameters.values())]
        return [dict(case) for case in self.parameters]

    def work(self, seeds: int) -> list[tuple[dict[str, Any], int]]:
        """Every run: a set of parameters and a seed.

        >>> Study("s", "", {"n": [1, 9]}, dict, dict, most_seeds=lambda p: 1 if p["n"] > 5 else None).work(2)
        [({'n': 1}, 0), ({'n': 1}, 1), ({'n': 9}, 0)]
        """
        found = []
        for case in self.cases():
            most = self.most_seeds(case) if self.most_seeds is not None else None
            found += [(case, seed) for seed in range(seeds if most is None else min(seeds, most))]
        return found

    def with_parameters(self, given: Mapping[str, Any]) -> Study:
        """The study with other values for some parameters; a single value is a list of one."""
        known = list(self.parameters) if isinstance(self.parameters, Mapping) else list(self.cases()[0])
        for name in given:
            if name not in known:
                close = nearest(name, known)
                hint = f"did you mean {close!r}?" if close else "parameters are " + ", ".join(known)
                raise StudyError(f"the study {self.name!r} has no parameter {name!r}", hint=hint)
        lists = {name: value if isinstance(value, list) else [value] for name, value in given.items()}
        if isinstance(self.parameters, Mapping):
            return replace(self, parameters={**self.parameters, **lists})
        # In a list of sets a given value replaces each set's own; sets that become equal are one.
        merged: list[Parameters] = []
        for case in self.cases():
            for values in itertools.product(*lists.values()):
                changed = {**case, **dict(zip(lists, values, strict=True))}
                if changed not in merged:
                    merged.append(changed)
        return replace(self, parameters=merged)
