"""The `headgate` program: collects the commands and turns a `HeadgateError` into one line and exit code 2."""

from __future__ import annotations

import importlib
import signal
import sys
from typing import NoReturn

import typer
from typer.main import get_command

from headgate import __version__
from headgate.cli.groups import Program
from headgate.cli.options import refuse_secrets
from headgate.cli.usage import tidy
from headgate.diagnostics import SERVICE, writes_json
from headgate.errors import HeadgateError
from headgate.parts import missing_part

# Modules that register themselves on the application, in the order of the help page.
COMMANDS: tuple[str, ...] = (
    "headgate.cli.check",
    "headgate.cli.up",
    "headgate.cli.relay",
    "headgate.cli.gateway",
    "headgate.cli.join",
    "headgate.cli.status",
    "headgate.cli.why",
    "headgate.cli.unreadable",
    "headgate.cli.doctor",
    "headgate.cli.subscriptions",
    "headgate.cli.user",
    "headgate.cli.audit",
    "headgate.cli.backup",
    "headgate.cli.tail",
    "headgate.cli.demo",
    "headgate.cli.explain",
    "headgate.cli.plan",
    "headgate.cli.change",
    "headgate.cli.device",
    "headgate.cli.trace",
    "headgate.cli.tune",
    "headgate.cli.feeds",
    "headgate.cli.policy",
    "headgate.cli.replay",
    "headgate.cli.parts",
    "headgate.cli.picture",
    "headgate.cli.gridding",
    "headgate.cli.job",
    "headgate.cli.extensions",
)

app = Program(
    name="headgate",
    help="Deliver live data streams to many subscribers over limited links, and account for every row.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(show: bool) -> None:
    if show:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    del version


def main() -> None:
    """Run the command line.

    Ctrl-C ends the program at once and silently while anything is imported, since an extension module that is stopped
    half-way fails with whatever it likes. Commands that have something to clean up take the signal over when they
    begin: see `options.run` and `options.raise_on_interrupt`.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        for module in COMMANDS:
            importlib.import_module(module).register(app)
        refuse_secrets(sys.argv[1:])
        tidy(get_command(app))(prog_name="headgate")
    except HeadgateError as error:
        _end(error)
    except ModuleNotFoundError as error:
        missing = missing_part(error)
        if missing is None:
            raise
        _end(missing)
    finally:
        signal.signal(signal.SIGINT, before)


def _end(error: HeadgateError) -> NoReturn:
    if writes_json():
        SERVICE.error("%s", error)
    else:
        typer.secho(f"headgate: {error}", err=True, fg=typer.colors.RED)
    sys.exit(2)


if __name__ == "__main__":
    main()
