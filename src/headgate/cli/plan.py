"""`headgate plan`: who forwards what to whom, the quality each subscription will get, and why."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.cli import options as o
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from headgate.client import Client
    from headgate.model import Deployment, Plan
    from headgate.planning import PlanResult, Sizes


def register(app: typer.Typer) -> None:
    """Add the command. `evaluate` in place of a file judges a problem and a plan of any origin."""
    app.command("plan")(plan)


@dataclass(frozen=True)
class SearchOptions:
    """How a plan is made."""

    algorithm: Annotated[
        str,
        typer.Option(
            help="brush, chain, unfas, unfag, qasds, qasdg, search (QASDG improved); exact: optimum, cheapest."
        ),
    ] = "qasdg"
    objective: Annotated[
        str,
        typer.Option(
            help="For search: quality, arithmetic, contracts or minimum, then bandwidth, fairness; or =weights."
        ),
    ] = "quality,bandwidth,fairness"
    seed: Annotated[int, typer.Option(help="Seed of the join order and of the search.")] = 0


_SEARCH = SearchOptions()


@dataclass(frozen=True)
class AssumedChanges:
    """What is assumed to be otherwise than the file says."""

    what_if: Annotated[
        list[str] | None, typer.Option(help='A change to ask about, such as "site paris upload=1Mbit/s".')
    ] = None
    keep: Annotated[
        bool, typer.Option("--keep", help="With --what-if: carry the plan over with few moves, not planned anew.")
    ] = False
    rate: Annotated[
        list[str] | None, typer.Option(help="The rate of a stream whose file says none, as STREAM=500/s; repeatable.")
    ] = None
    measured: Annotated[
        bool, typer.Option("--measured", help="Plan with the rates, sizes and selectivities of a running deployment.")
    ] = False


_ASSUMED = AssumedChanges()


@dataclass(frozen=True)
class PlanOutput:
    """What is shown."""

    compare: Annotated[bool, typer.Option(help="Show all algorithms side by side.")] = False
    svg: Annotated[Path | None, typer.Option(help="Draw the graph with its link loads there.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Show what a running deployment's planner assumed, predicted and measured; with --what-if, what a "
            "change would do to it.",
        ),
    ] = False


_OUTPUT = PlanOutput()


def plan(
    file: Annotated[
        Path | None, typer.Argument(help="The deployment file, or `evaluate` to judge a PROBLEM and a PLAN.")
    ] = None,
    others: Annotated[list[Path] | None, typer.Argument(help="After `evaluate`: the JSON problem and plan.")] = None,
    at: o.ConnectionOptions = o.HERE,
    search: SearchOptions = _SEARCH,
    assumed: AssumedChanges = _ASSUMED,
    output: PlanOutput = _OUTPUT,
) -> None:
    """Plan a deployment: print the trees, what each subscription will get, and which site or link binds."""
    if output.live:
        _of_running(at, search, assumed, output.as_json)
        return
    if file is None:
        raise HeadgateError("no deployment file", hint="headgate plan headgate.yaml, or headgate plan --live")
    if str(file) == "evaluate":
        _evaluate(others or [], output.as_json)
        return
    from headgate.cli.deployment import read_deployment
    from headgate.planning.svg import draw
    from headgate.planning.what_if import change
    from headgate.service.proposing import carry_over, propose, result_document

    deployment = _with_rates(read_deployment(file), assumed.rate or [])
    sizes = _measured(at) if assumed.measured else None
    before, asked = None, deployment
    if assumed.what_if:
        before = propose(deployment, search.algorithm, search.objective, search.seed, sizes)
        for text in assumed.what_if:
            deployment = change(deployment, text)
    if output.compare:
        _compare(deployment, search.objective, search.seed, output.as_json, sizes)
        return
    result = propose(deployment, search.algorithm, search.objective, search.seed, sizes)
    gone = sorted(asked.subscriptions.keys() - deployment.subscriptions.keys())
    kept: dict[str, Any] = {}
    if assumed.keep:
        if before is None:
            raise HeadgateError("nothing changes", hint='--keep goes with --what-if, such as "without site lyon"')
        result, kept = carry_over(before.plan, result, search.seed)
    if output.svg is not None:
        output.svg.write_text(draw(result.graph, result.unknown_rates), encoding="utf-8")
    if output.as_json:
        typer.echo(json.dumps({**result_document(result), "subscriptions_gone": gone, **kept}))
        return
    _print(result, before)
    if gone:
        what = "subscription goes with it and is" if len(gone) == 1 else "subscriptions go with it and are"
        typer.echo(f"{len(gone)} {what} not counted any more: {', '.join(gone)}")
    if kept:
        typer.echo("\n".join(kept["steps"]))
        typer.echo(
            f"kept: {kept['moves']} members have another parent, join or leave, quality"
            f" {result.metrics.geometric_mean:.3f}; planned anew: {kept['moves_anew']}, quality"
            f" {kept['quality_anew']:.3f}"
        )
    if output.svg is not None:
        typer.echo(f"drawn to {output.svg}")


def _live(at: o.ConnectionOptions, as_json: bool) -> None:
    """What the planner of a running deployment last said."""
    from headgate.cli.plan_live import live_tables
    from headgate.cli.status import read_document
    from headgate.cli.status_sheets import planner_line

    found = o.run(read_document(at))["planner"]
    if not found:
        raise HeadgateError("nothing was measured yet", hint="the planner looks every half minute while rows flow")
    if as_json:
        typer.echo(json.dumps(found))
        return
    console = o.wide_console()
    for table in live_tables(found):
        console.print(table)
    console.print(planner_line(found), markup=False)


def _of_running(at: o.ConnectionOptions, search: SearchOptions, assumed: AssumedChanges, as_json: bool) -> None:
    """What was measured of the deployment that runs, or what a change would do to it; nothing is changed."""
    if not assumed.what_if:
        _live(at, as_json)
        return
    from headgate.cli.plan_live import what_if_lines, what_if_table
    from headgate.protocol.reports import PlannerReport
    from headgate.service.proposing import ask_what_if, measured_sizes
    from headgate.service.reports import read_reports, shown

    async def work(client: Client) -> dict[str, Any]:
        snapshot = await client.snapshot()
        sizes = measured_sizes(shown((await read_reports(client.fabric, PlannerReport)).get("_")))
        return ask_what_if(snapshot, sizes, assumed.what_if or [], search.algorithm.lower(), keep=assumed.keep)

    found = at.run(work)
    if as_json:
        typer.echo(json.dumps(found))
        return
    o.wide_console().print(what_if_table(found))
    typer.echo("\n".join(what_if_lines(found)))


def _with_rates(deployment: Deployment, texts: list[str]) -> Deployment:
    """The deployment with rates given as STREAM=RATE; a plan that it gives stays."""
    from headgate.planning.what_if import change

    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise HeadgateError(f"{text!r} is not STREAM=RATE", hint="for example --rate weather=500/s")
        deployment = replace(change(deployment, f"stream {name} rate={value}"), plan=deployment.plan)
    return deployment


def _measured(at: o.ConnectionOptions) -> Sizes:
    """What the planner of a running deployment has measured of its streams and subscriptions."""
    from headgate.cli.status import read_document
    from headgate.service.proposing import measured_sizes

    found = measured_sizes(o.run(read_document(at))["planner"])
    if found is None:
        raise HeadgateError("nothing was measured yet", hint="the planner looks every half minute while rows flow")
    return found


def _print(result: PlanResult, before: PlanResult | None) -> None:
    from rich.console import Console
    from rich.table import Table

    for name, tree in result.plan.trees.items():
        typer.echo(f"{name}: {tree.root}")
        _branch(result.plan, name, tree.root, "  ")
    table = Table()
    for heading in ("subscription", "stream", "site", "drop", "delay", "quality", "why"):
        table.add_column(heading)
    for found in result.subscriptions.values():
        was = before.subscriptions.get(found.subscription) if before else None
        quality = f"{found.quality:.2f}" + (f" (was {was.quality:.2f})" if was else "")
        broken = "" if found.met else f"below its {found.at_least:.2f}; "
        unknown = found.stream in result.unknown_rates
        table.add_row(
            found.subscription,
            found.stream,
            found.site,
            "unknown" if unknown else f"{found.drop:.3f}",
            f"{found.delay_s * 1000:.0f} ms",
            "unknown" if unknown else quality,
            "no rate" if unknown else broken + (found.binds or ""),
        )
    Console().print(table, markup=False)
    typer.echo(result.explanation)
    if before and not result.unknown_rates:
        means = [found.metrics.geometric_mean for found in (before, result)]
        typer.echo(f"with the change the geometric mean goes from {means[0]:.3f} to {means[1]:.3f}")


def _branch(plan: Plan, stream: str, site: str, indent: str) -> None:
    pending = [(child, indent) for child in reversed(plan.trees[stream].children(site))]
    while pending:
        child, space = pending.pop()
        typer.echo(f"{space}└ {child}")
        pending.extend((below, space + "  ") for below in reversed(plan.trees[stream].children(child)))


def _compare(deployment: Deployment, objective: str, seed: int, as_json: bool, sizes: Sizes | None) -> None:
    from rich.console import Console
    from rich.table import Table

    from headgate.planning import ALGORITHMS
    from headgate.service.proposing import propose

    names = [*(found.name for found in ALGORITHMS), "search"]
    results = {name: propose(deployment, name, objective, seed, sizes, terms=False).metrics for name in names}
    if as_json:
        typer.echo(json.dumps({name: metrics.as_dict() for name, metrics in results.items()}))
        return
    table = Table()
    for heading in (
        "algorithm",
        "geometric",
        "zeros",
        "arithmetic",
        "minimum",
        "contracts",
        "kB/s",
        "fairness",
        "delay",
    ):
        table.add_column(heading)
    for name, metrics in results.items():
        table.add_row(
            name,
            f"{metrics.geometric_mean:.3f}",
            str(metrics.zeros),
            f"{metrics.arithmetic_mean:.3f}",
            f"{metrics.minimum:.3f}",
            f"{100 * metrics.contracts_met:.0f} %",
            f"{metrics.total_bandwidth_bytes_per_s / 1000:,.1f}",
            f"{metrics.fairness:.4f}",
            f"{metrics.delay_mean_s * 1000:.0f} ms",
        )
    Console().print(table, markup=False)


def _evaluate(files: list[Path], as_json: bool) -> None:
    """Judge a plan of any origin for a problem, both as JSON documents."""
    from headgate.planning import Graph, edges_of, violations
    from headgate.planning.document import parse_plan, parse_problem
    from headgate.planning.graph import parents_of
    from headgate.planning.planner import result_of
    from headgate.service.proposing import result_document

    if len(files) != 2:
        raise HeadgateError("evaluate takes a problem and a plan", hint="headgate plan evaluate PROBLEM.json PLAN.json")
    problem, given = parse_problem(_read(files[0])), parse_plan(_read(files[1]))
    broken = [found for found in violations(problem, edges_of(problem, parents_of(given))) if found.condition != 3]
    if broken:
        if as_json:
            typer.echo(json.dumps({"valid": False, "violations": [str(found) for found in broken]}))
        else:
            typer.echo("\n".join(str(found) for found in broken))
        raise typer.Exit(1)
    result = result_of(Graph.of(problem, given), "given")
    document = {"valid": True, **result_document(result)}
    if as_json:
        typer.echo(json.dumps(document))
    else:
        for key, value in document["metrics"].items():
            typer.echo(f"{key}: {value}")
        typer.echo(result.explanation)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise HeadgateError(f"cannot read {str(path)!r}: {(error.strerror or 'failed').lower()}") from None
    except ValueError as error:
        raise HeadgateError(f"not JSON: {error}", where=str(path)) from None
