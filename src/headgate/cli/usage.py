"""The help pages: flags without a type, arguments in capitals, paragraphs that fill the line."""

from __future__ import annotations

import inspect
import re
from typing import Any

import typer


def tidy(command: Any) -> Any:
    """A command and those below it with help pages for people; returns the command."""
    if command.help:
        command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(command.help))
    for parameter in (*command.params, command.get_help_option(typer.Context(command))):
        if parameter is None or parameter.metavar is not None:
            continue
        if parameter.param_type_name == "argument":
            parameter.metavar = parameter.name.upper() + ("..." if parameter.nargs == -1 else "")
        elif parameter.is_flag:
            parameter.metavar = ""
        elif parameter.multiple:
            parameter.metavar = "<str> ..."
    for inner in getattr(command, "commands", {}).values():
        tidy(inner)
    return command
