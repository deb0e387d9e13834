"""`headgate bench`: ratios to peers and baselines, each measured in the same run; and the laboratory beside it."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable
from typing import Annotated, Any

import typer

from headgate.errors import HeadgateError, nearest
from headgate_studies.bench import BENCHMARKS
from headgate_studies.cli import lab


def register(app: typer.Typer) -> None:
    """Add the command, and those of the laboratory of hosts that some benchmarks run in."""
    app.command("bench")(bench)
    lab.register(app)


def bench(
    name: Annotated[str | None, typer.Argument(help="A benchmark; none lists them.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--set", "-o", help="A parameter of the benchmark, as NAME=VALUE.")
    ] = None,
) -> None:
    """Run a benchmark and print its figures; the last line is one JSON object."""
    if name is None:
        for known, benchmark in BENCHMARKS.items():
            typer.echo(f"{known:<12} {benchmark.about}")
        return
    if name not in BENCHMARKS:
        close = nearest(name, BENCHMARKS)
        raise HeadgateError(
            f"no benchmark {name!r}", hint=f"did you mean {close!r}?" if close else "`headgate bench` lists them"
        )
    module = importlib.import_module(BENCHMARKS[name].module)
    figures = module.run(**checked(parameters(option or []), module.run))
    typer.echo(json.dumps(figures))


def parameters(options: list[str]) -> dict[str, Any]:
    """Parameters given as NAME=VALUE, each value read as JSON where it is JSON and as text where it is not."""
    found: dict[str, Any] = {}
    for text in options:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise HeadgateError(f"{text!r} is not NAME=VALUE", hint="for example --set seeds=5")
        try:
            found[key] = json.loads(value)
        except json.JSONDecodeError:
            found[key] = value
    return found


def checked(given: dict[str, Any], run: Callable[..., Any]) -> dict[str, Any]:
    """Parameters that a benchmark has; one value stands for a list of one where it takes several.

    >>> def run(rows=(1, 2), seed=1): ...
    >>> checked({"rows": 5, "seed": 3}, run)
    {'rows': [5], 'seed': 3}
    """
    known = inspect.signature(run).parameters
    for name in given:
        if name not in known:
            close = nearest(name, known)
            fix = f"did you mean {close!r}?" if close else f"it has {', '.join(known)}"
            raise HeadgateError(f"the benchmark has no parameter {name!r}", hint=fix)
    return {
        name: [value] if isinstance(known[name].default, tuple) and not isinstance(value, list) else value
        for name, value in given.items()
    }
