"""Commands that other distributions add, found by their entry points in the group `headgate.commands`."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

import typer

from headgate.errors import HeadgateError

GROUP: Final = "headgate.commands"
# What `headgate-studies` adds; without it these commands say how to get it.
LABORATORY: Final = {
    "study": "Run the experiments behind the figures.",
    "bench": "Measure ratios to peers and baselines.",
}


def register(app: typer.Typer) -> None:
    """Add what is installed; an entry point is a function that takes the application, as this one does.

    One that cannot be loaded becomes a command that says so: the others go on working.
    """
    points = {point.name: point for point in entry_points(group=GROUP)}
    for name in sorted(points):
        try:
            points[name].load()(app)
        except (ImportError, AttributeError) as error:
            what = f"the command {name!r} of {points[name].value} cannot be loaded: {error}"
            hint = "install the distribution that registers it again, or remove it"
            _add_refusal(app, name, "Cannot be loaded.", HeadgateError(what, hint=hint))
    for name, about in LABORATORY.items():
        if name not in points:
            what = f"`headgate {name}` is part of headgate-studies, which is not installed"
            hint = "pip install headgate-studies, or pip install -e ./studies in a checkout"
            _add_refusal(app, name, f"{about} Needs headgate-studies.", HeadgateError(what, hint=hint))


def _add_refusal(app: typer.Typer, name: str, about: str, error: HeadgateError) -> None:
    """A command that takes anything and says why it cannot be run."""

    def refuse() -> None:
        raise error

    anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, help=about, context_settings=anything, hidden=True)(refuse)
