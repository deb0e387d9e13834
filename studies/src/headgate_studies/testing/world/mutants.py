"""Planted faults: what the simulator has to find. Each is a line of the protocol, and what stands there instead."""

from __future__ import annotations

import importlib
import inspect
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from headgate_studies.testing.world.families import hunting_seed, kind_of_seed, named_scenario
from headgate_studies.testing.world.mutant import Mutant
from headgate_studies.testing.world.simulation import Simulation

_HANG_S: Final = 60
Hint = tuple[str, int]
"""A scenario: its family and its number."""


@dataclass(frozen=True, slots=True)
class MutantOutcome:
    """How many seeds were run, what showed the fault, and in which scenario; None when nothing did."""

    name: str
    seeds: int
    found: str | None
    by: Hint | None = None


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Have the fault in this process: functions keep their identity, and get other code."""
    module = importlib.import_module(f"headgate.{mutant.module}")
    source = inspect.getsource(module)
    if source.count(mutant.before) != 1:
        raise ValueError(f"{mutant.name}: the text is {source.count(mutant.before)} times in {module.__name__}")
    changed = compile(source.replace(mutant.before, mutant.after), module.__file__ or "", "exec")
    patched: list[tuple[FunctionType, CodeType]] = []
    for code in _functions(changed):
        function = _resolve(module, code.co_qualname)
        if function is not None and function.__code__ != code:
            patched.append((function, function.__code__))
            function.__code__ = code
    if not patched:
        raise ValueError(f"{mutant.name}: no function of {module.__name__} has changed")
    try:
        yield
    finally:
        for function, code in patched:
            function.__code__ = code


def _functions(code: CodeType) -> Iterator[CodeType]:
    """The code of functions of a module and of methods of its classes; what is nested in them comes with them."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if "<locals>" not in each.co_qualname:
                yield each
            yield from _functions(each)


def _resolve(module: ModuleType, name: str) -> FunctionType | None:
    found: Any = module
    for part in name.split("."):
        found = inspect.getattr_static(found, part, None)
    if isinstance(found, property):
        found = found.fget
    elif isinstance(found, cached_property):
        found = found.func
    elif isinstance(found, classmethod | staticmethod):
        found = found.__func__
    return found if isinstance(found, FunctionType) else None


def _hangs(*_: object) -> None:
    raise TimeoutError("it does not come to an end")


def hunt(mutant: Mutant, most: int, hint: Hint | None = None) -> MutantOutcome:
    """Run seeds until one finds the fault: the hint first, then in the order of `hunting_seed`.

    A seed has found it if it breaks a promise with the fault, and none without it.
    """
    signal.signal(signal.SIGALRM, _hangs)
    seeds = (kind_of_seed(hunting_seed(number)) for number in range(most))
    for number, scenario in enumerate(seeds if hint is None else chain([hint], seeds), 1):
        with planted(mutant):
            found = _broken(scenario)
        if found is not None and _broken(scenario) is None:
            return MutantOutcome(mutant.name, number, found[:90], scenario)
    return MutantOutcome(mutant.name, most, None)


def _broken(scenario: Hint) -> str | None:
    """The promise that a scenario breaks, None when it keeps all of them."""
    signal.alarm(_HANG_S)
    try:
        return Simulation(named_scenario(*scenario)).run().violation
    except Exception as error:  # noqa: BLE001 # whatever breaks has shown the fault
        return repr(error)
    finally:
        signal.alarm(0)
