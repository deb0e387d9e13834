"""`headgate tune --live`: the tuner between running relays, its cost over time and what each transformation brings."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import typer

from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headgate.client import Client
    from headgate.protocol.reports import TunedStep, TuningReport

_POLL_S: Final = 0.5
_SHOWN: Final = 24
_POINTS: Final = 80


@dataclass(frozen=True, slots=True)
class Watching:
    """How long to look on: for some seconds (0 without end), or until nothing was changed for some periods."""

    seconds: float = 0.0
    settled: bool = False
    as_json: bool = False

    @property
    def at_once(self) -> bool:
        """Whether to tell how things stand now, without looking on."""
        return self.as_json and not self.seconds and not self.settled


async def tune_live(client: Client, wishes: Mapping[str, Any], watching: Watching) -> None:
    """Give the running tuner other wishes, if there are some, and show what it does."""
    run = 0
    if wishes:
        run = int((await client.control("tune", **wishes))["run"])
    if watching.as_json:
        report = await _last(client, run, watching)
        typer.echo(json.dumps(as_document(report)))
        return
    from rich.live import Live

    from headgate.cli.options import wide_console

    report = await _report(client, run)
    with Live(screen_of(report), console=wide_console(), auto_refresh=False) as screen:
        async for each in _reports(client, run, watching):
            screen.update(screen_of(each), refresh=True)


async def _last(client: Client, run: int, watching: Watching) -> TuningReport:
    found = await _report(client, run)
    if not watching.at_once:
        async for each in _reports(client, run, watching):
            found = each
    return found


async def _reports(client: Client, run: int, watching: Watching) -> AsyncIterator[TuningReport]:
    """The report again and again, as long as somebody looks on."""
    end_s = time.monotonic() + (watching.seconds or math.inf)
    while time.monotonic() < end_s:
        report = await _report(client, run)
        yield report
        if watching.settled and report.state == "settled":
            return
        await asyncio.sleep(_POLL_S)


async def _report(client: Client, run: int) -> TuningReport:
    """What the tuner says of the run that was asked for, or of whichever is on."""
    from headgate.protocol.reports import TuningReport
    from headgate.service.reports import read_reports

    while True:
        report = (await read_reports(client.fabric, TuningReport)).get("_")
        if report is None or report.state == "off":
            raise HeadgateError(
                "the tuner does not own the plan of the running deployment, so it does nothing",
                hint="set `options: {planner: tuner}` in the deployment file; `headgate tune FILE` tries it beforehand",
            )
        if report.run >= run:
            return report
        await asyncio.sleep(_POLL_S)


def screen_of(report: TuningReport) -> RenderableType:
    """What is shown: wishes, cost over time, and the last transformations."""
    from rich.console import Group
    from rich.table import Table

    from headgate.cli.tune import spark

    costs = [point.cost for point in report.costs if point.cost is not None]
    missed = report.costs[-1].missed if report.costs else {}
    lines = [
        f"objective: {report.objective}",
        f"mode: {', '.join(report.modes)}, a period is {report.every_s:g} s, state: {report.state}",
        "constraints: " + "; ".join(f"{text}: {_kept(missed.get(text))}" for text in report.constraints),
        f"cost {costs[-1]:.6g}  {spark(costs[-_POINTS:])}" if costs else "cost is not known yet",
    ]
    table = Table("s", "period", "stream", "transformation", "moves", "cost before", "predicted", "measured", "state")
    for step in report.steps[-_SHOWN:]:
        table.add_row(*_cells(step))
    return Group("\n".join(lines), table)


def _kept(missed_by: float | None) -> str:
    return "holds" if not missed_by else f"missed by {missed_by:.4g}"


def _cells(step: TunedStep) -> list[str]:
    moves = ", ".join(f"{site} below {parent}" for site, parent in step.moves.items())
    figures = ("-" if each is None else f"{each:.5g}" for each in (step.cost_before, step.predicted, step.measured))
    name = step.transformation + (" (random)" if step.random else "")
    state = f"refused: {step.why}" if step.why else f"in force since revision {step.revision}"
    return [f"{step.at_s:.1f}", str(step.period), step.stream, name, moves, *figures, state]


def as_document(report: TuningReport) -> dict[str, Any]:
    """The report for a JSON document: `cost`, `costs` over time, and `steps` with `predicted` and `measured`."""
    from headgate.service.reports import shown

    return shown(report)
