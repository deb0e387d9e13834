"""`headgate tune`: improves a deployment's plan by its objective, within its constraints, one step after another."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.cli import options as o
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from headgate.model import Deployment, Plan
    from headgate.service.measuring import Look
    from headgate.tuning.deployment import TuneResult, TuneStep
    from headgate.tuning.search import Options

_BARS = "▁▂▃▄▅▆▇█"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tune")(tune)


@dataclass(frozen=True)
class LiveOptions:
    """The tuner between running relays."""

    live: Annotated[
        bool, typer.Option("--live", help="Show the tuner between the running relays, which carries its steps out.")
    ] = False
    mode: Annotated[
        list[str] | None,
        typer.Option(help="With --live: bottleneck, opportunistic, random, concurrent; may be given several times."),
    ] = None
    period: Annotated[str | None, typer.Option(help="With --live: the optimisation period, such as 30s.")] = None
    approximate: Annotated[
        float | None, typer.Option(help="With --live: the constant p of the statistics approximation.", min=0.0)
    ] = None
    seconds: Annotated[float, typer.Option(help="With --live: look on for so long; 0 until interrupted.")] = 0.0
    settled: Annotated[bool, typer.Option(help="With --live: look on until nothing changes for some periods.")] = False


_RUNNING = LiveOptions()


@dataclass(frozen=True)
class WatchOptions:
    """Looking again and again."""

    watch: Annotated[
        bool,
        typer.Option(help="Look at the running deployment (or at --measured) again and again and propose steps."),
    ] = False
    every: Annotated[float, typer.Option(help="Seconds between two looks with --watch.")] = 10.0
    looks: Annotated[int, typer.Option(help="Stop --watch after so many looks; 0 goes on until interrupted.")] = 0


_WATCHING = WatchOptions()


@dataclass(frozen=True)
class TuningOptions:
    """How the plan is improved."""

    objective: Annotated[str | None, typer.Option(help="An objective instead of the file's.")] = None
    constraint: Annotated[
        list[str] | None, typer.Option(help="A constraint besides the file's; may be given several times.")
    ] = None
    periods: Annotated[int, typer.Option(help="At most so many optimisation periods.")] = 200
    levels: Annotated[int, typer.Option(help="Levels of an optimisation unit, 3 to 6.", min=3, max=6)] = 3


_TUNING = TuningOptions()


@dataclass(frozen=True)
class TuneOutput:
    """What is shown and written."""

    steps: Annotated[bool, typer.Option(help="Show the make-before-break steps of every change.")] = False
    out: Annotated[Path | None, typer.Option(help="Write the tuned plan there, as the file's `plan:` part.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False


_OUTPUT = TuneOutput()


def tune(
    file: Annotated[Path | None, typer.Argument(help="The deployment file; not needed with --live.")] = None,
    measured: Annotated[Path | None, typer.Option(help="Measured link, site and size figures (JSON).")] = None,
    at: o.ConnectionOptions = o.HERE,
    running: LiveOptions = _RUNNING,
    watching: WatchOptions = _WATCHING,
    tuning: TuningOptions = _TUNING,
    output: TuneOutput = _OUTPUT,
) -> None:
    """Improve the plan of a deployment and show the cost over time and every transformation with its benefit.

    With --watch the plan in force and what the running deployment measured (rows and bytes, link latencies, loss,
    relay CPU per block, bandwidths that nobody declared and that bind) take the place of the file's figures, and the
    steps are proposed, not carried out. The output says of every metric what is measured and what is not.

    With --live the sites of a running deployment whose plan the tuner owns (`options: {planner: tuner}`) decide by
    messages between them and carry their steps out; the options change what they do, and the effect of every step is
    shown as predicted and as measured. With --json alone it tells how things stand now.
    """
    if running.live:
        from headgate.cli.tune_live import Watching, tune_live

        given = {
            "objective": tuning.objective,
            "constraints": tuning.constraint,
            "mode": ",".join(running.mode) if running.mode else None,
            "every": running.period,
            "levels": tuning.levels if tuning.levels != 3 else None,
            "approximate": running.approximate,
            "measured": _read(measured) if measured else None,
        }

        async def show() -> None:
            async with await at.connect() as client:
                wanted = {name: value for name, value in given.items() if value is not None}
                await tune_live(client, wanted, Watching(running.seconds, running.settled, output.as_json))

        o.run(show())
        return
    if file is None:
        raise HeadgateError("give the deployment file", hint="headgate tune headgate.yaml, or --live without a file")
    from headgate.cli.deployment import read_deployment
    from headgate.tuning.search import Options
    from headgate.tuning.transformations import STANDARD, WIDE, installed

    deployment = read_deployment(file)
    steps = (*(STANDARD if tuning.levels == 3 else WIDE), *installed())
    options = Options(transformations=steps, levels=tuning.levels, periods=tuning.periods)
    wishes = (*deployment.constraints, *(tuning.constraint or ()))
    looks_itself = watching.watch and measured is None
    plan: Plan | None = None
    result: TuneResult | None = None
    seen: dict[str, Any] | None = None
    count = 0
    while True:
        if looks_itself:
            found = o.run(_look(at, watching.every))
            result = tuned_live(found, deployment, tuning.objective, wishes, options)
        else:
            figures = _read(measured) if measured else {}
            result = _tuned(deployment, plan, tuning.objective, wishes, options, figures) if figures != seen else None
            seen = figures
        if result is not None:
            _show(result, steps=output.steps or watching.watch, as_json=output.as_json)
            plan = result.plan
            if output.out is not None:
                output.out.write_text(plan_text(result.plan))
        count += 1
        if not watching.watch or count == watching.looks:
            return
        if not looks_itself:  # a look at the running deployment takes its time itself
            time.sleep(watching.every)


async def _look(at: o.ConnectionOptions, seconds: float) -> Look:
    """The running deployment, watched for so long."""
    from headgate.service.measuring import look

    async with await at.connect() as client:
        return await look(client.fabric, client.tables, seconds)


def tuned_live(
    found: Look, deployment: Deployment, objective: str | None, constraints: tuple[str, ...], options: Options
) -> TuneResult:
    """The plan in force, improved on what was measured; the objective is the file's unless another one is given."""
    from headgate.tuning.deployment import tune_deployment

    return tune_deployment(
        found.snapshot.deployment,
        plan=found.snapshot.plan,
        objective=objective or deployment.objective,
        constraints=constraints,
        options=options,
        measured=found.measured,
        problem=found.problem,
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise HeadgateError(f"cannot read {path}", hint=str(error.strerror)) from None
    except json.JSONDecodeError as error:
        raise HeadgateError(f"{error.msg}", where=f"{path}:{error.lineno}:{error.colno}") from None
    if not isinstance(document, dict):
        raise HeadgateError("measured figures are one JSON object", where=str(path))
    return document


def _tuned(
    deployment: Deployment,
    plan: Plan | None,
    objective: str | None,
    constraints: tuple[str, ...],
    options: Options,
    figures: dict[str, Any],
) -> TuneResult:
    from headgate.tuning.deployment import tune_deployment
    from headgate.tuning.measured import read_measured

    found, sizes = read_measured(figures, deployment.sites)
    return tune_deployment(
        deployment,
        plan=plan,
        objective=objective,
        constraints=constraints,
        options=options,
        sizes=sizes,
        measured=found,
    )


def _show(result: TuneResult, *, steps: bool, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(as_document(result)))
        return
    typer.echo(f"objective: {result.objective}")
    typer.echo("figures:")
    for name, source in result.sources.items():
        typer.echo(f"  {name}: {source}")
    typer.echo("constraints:")
    for text, (was, now) in result.violations.items():
        state = "holds" if now == 0 else f"missed by {now:g}"
        typer.echo(f"  {text}: {state}" + (f" (was missed by {was:g})" if was and was != now else ""))
    typer.echo(f"cost {result.cost_before:.6g}  {spark([result.cost_before, *(s.cost for s in result.steps)])}")
    for step in result.steps:
        typer.echo(_line(result, step))
        if steps:
            for part in step.steps:
                typer.echo(f"        {part.told(result.sites)}")
    end = "nothing more helps" if result.settled else "the periods ran out"
    typer.echo(f"cost {result.cost_before:.6g} -> {result.cost:.6g} in {len(result.steps)} steps: {end}")
    typer.echo(
        f"quality (arithmetic mean) {result.metrics_before.arithmetic_mean:.3f} ->"
        f" {result.metrics.arithmetic_mean:.3f}, delay {result.metrics_before.delay_mean_s * 1e3:.1f} ->"
        f" {result.metrics.delay_mean_s * 1e3:.1f} ms"
    )


def _line(result: TuneResult, step: TuneStep) -> str:
    moves = ", ".join(f"{result.sites[site]} below {result.sites[parent]}" for site, parent in step.candidate.moves)
    missed = f", missed {step.violation:.3g}" if step.violation else ""
    return (
        f"  {step.period:>3} {step.stream}: {step.candidate.name}: {moves}"
        f"  benefit {step.benefit:.4g}, cost {step.cost:.6g}{missed}"
    )


def spark(values: list[float]) -> str:
    """Costs over time in one line.

    >>> spark([4.0, 3.0, 1.0])
    '█▆▁'
    """
    low, high = min(values), max(values)
    if high == low:
        return _BARS[0] * len(values)
    return "".join(_BARS[round((value - low) / (high - low) * (len(_BARS) - 1))] for value in values)


def as_document(result: TuneResult) -> dict[str, Any]:
    """The result as one JSON-ready document."""
    return {
        "objective": result.objective,
        "metrics": dict(result.sources),
        "cost_before": result.cost_before,
        "cost": result.cost,
        "settled": result.settled,
        "violations": {text: {"before": was, "after": now} for text, (was, now) in result.violations.items()},
        "steps": [
            {
                "period": step.period,
                "stream": step.stream,
                "transformation": step.candidate.name,
                "moves": {result.sites[site]: result.sites[parent] for site, parent in step.candidate.moves},
                "benefit": step.benefit,
                "cost": step.cost,
                "steps": [part.told(result.sites) for part in step.steps],
            }
            for step in result.steps
        ],
        "plan": {stream: dict(tree.parents) for stream, tree in result.plan.trees.items()},
    }


def plan_text(plan: Plan) -> str:
    """A plan as the `plan:` part of a deployment file."""
    lines = ["plan:"]
    for stream, tree in plan.trees.items():
        parents = ", ".join(f"{site}: {parent}" for site, parent in sorted(tree.parents.items()))
        lines.append(f"  {stream}: {{{parents}}}")
    return "\n".join(lines) + "\n"
