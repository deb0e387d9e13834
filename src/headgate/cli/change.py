"""What changes a deployment while it runs: `headgate change`, `pause`, `resume`, `plans`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.cli import options as o
from headgate.cli.groups import Program
from headgate.errors import HeadgateError

plans = Program(help="Plans: propose one, approve or reject it, and see those that were in force.")
Names = Annotated[list[str], typer.Argument(help="Subscriptions, all of them or none.")]
Proposal = Annotated[str, typer.Argument(help="The id of the proposal.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("change")(change)
    app.command("pause")(pause)
    app.command("resume")(resume)
    app.add_typer(plans, name="plans")


def change(
    words: Annotated[
        list[str] | None,
        typer.Argument(help='Changes, such as "site paris upload=1Mbit/s" or "link paris-oslo delay=40ms".'),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Parts of a deployment file to merge: streams, sites, links, objective, constraints."),
    ] = None,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Change sites, links, streams and the objective of the running deployment, as one revision.

    Ask what it would do first: `headgate plan --what-if` takes the same words. In a file, null ends a site or a stream.
    """
    given: dict[str, Any] = {}
    if file is not None:
        given["deployment"] = _read(file)
    if words:
        given["changes"] = words
    if not given:
        raise HeadgateError(
            "nothing to change", hint='headgate change "site paris upload=1Mbit/s", or --file PART.yaml'
        )
    _show(at.ask("change", **given))


def _read(file: Path) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise HeadgateError(f"cannot read {str(file)!r}: {error}", hint="give a YAML file") from None
    if not isinstance(found, dict):
        raise HeadgateError(f"{str(file)!r} is no mapping", hint="write for example `sites: {tromso: {}}`")
    return found


def _show(answer: dict[str, Any]) -> None:
    typer.echo(json.dumps(answer))


def pause(
    names: Names,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Let subscriptions take no rows until they are resumed; rows that come meanwhile are not matched for them."""
    _show(at.ask("pause", names=names))


def resume(
    names: Names,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Let paused subscriptions take rows again."""
    _show(at.ask("resume", names=names))


@plans.command("history")
def history(
    limit: Annotated[int, typer.Option(help="How many at most.", min=1, max=200)] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Show the plans that were in force, newest first: who got another parent, and what quality was predicted."""
    from headgate.planning.difference import ParentChange

    found = at.ask("plan-history", limit=limit)
    if as_json:
        _show(found)
        return
    for each in found["plans"]:
        typer.echo(
            f"{each['time']}  revision {each['revision']}  {each['what']}: {each['moves']} moved{_brought(each)}"
        )
        for moved in each["moved"]:
            change = ParentChange(moved["stream"], moved["site"], moved["from"], moved["to"])
            typer.echo(f"    {change}")


def _brought(change: dict[str, Any]) -> str:
    """What was predicted of a change of the plan, in words; nothing where nothing was."""
    found = ""
    if change["quality_after"] is not None:
        before = "unknown" if change["quality"] is None else f"{change['quality']:.3f}"
        found += f", predicted quality {before} -> {change['quality_after']:.3f}"
    if change["tuned"] is not None:
        tuned = change["tuned"]
        costs = (("", "cost"), ("predicted ", "cost_predicted"), ("measured ", "cost_measured"))
        known = [f"{word}{tuned[key]:.4g}" for word, key in costs if tuned[key] is not None]
        found += f", {tuned['transformation']}, cost {' -> '.join(known)}"
    return found


@plans.command("proposed")
def proposed(
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Show the plan that waits for approval, or the last that did, as JSON."""
    from headgate.service.proposals import read_proposal
    from headgate.service.reports import shown

    async def work() -> dict[str, Any]:
        async with await at.connect() as client:
            return {"proposal": shown(await read_proposal(client.fabric)) or None}

    _show(o.run(work()))


@plans.command("propose")
def propose(
    algorithm: Annotated[str, typer.Option(help="As for `headgate plan`.")] = "search",
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Make a plan by what was measured, and propose it; the answer has its id and the difference."""
    answer = at.ask("plan-propose", algorithm=algorithm)
    _show(answer["proposal"])


@plans.command("approve")
def approve(
    proposal: Proposal,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Put a proposed plan in force."""
    _show(at.ask("plan-approve", proposal=proposal))


@plans.command("reject")
def reject(
    proposal: Proposal,
    at: o.ConnectionOptions = o.HERE,
) -> None:
    """Say no to a proposed plan; the planner does not propose it again."""
    _show(at.ask("plan-reject", proposal=proposal))
