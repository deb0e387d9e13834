"""The page of the command line, from the commands themselves."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from headgate.cli.app import COMMANDS
from headgate.cli.groups import Program
from headgate_studies.testing.reference.tables import table

# Those of the product and of this distribution, whether its entry points are installed or not.
MODULES = (
    *(module for module in COMMANDS if module != "headgate.cli.extensions"),
    "headgate_studies.cli.study",
    "headgate_studies.cli.bench",
)


def commands_page() -> str:
    """Every command with its arguments and options."""
    app = Program(name="headgate", add_completion=False)
    for module in MODULES:
        importlib.import_module(module).register(app)
    lines = [
        "# The command line",
        "",
        "Every command prints its problems on the error stream and ends with 0 when all is well, with 1 when what it",
        "checked is wrong, and with 2 when it could not do its work. `headgate COMMAND --help` says the same.",
        "",
    ]
    root: Any = get_command(app)
    for words, command in _commands(root, ("headgate",)):
        lines += _section(words, command)
    return "\n".join(lines)


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
        return
    for name, found in inner.items():
        yield from _commands(found, (*words, name))


def _section(words: tuple[str, ...], command: Any) -> list[str]:
    parameters = [parameter for parameter in command.params if parameter.name != "help"]
    arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    usage = " ".join([*words, *(_argument(found) for found in arguments)])
    options = [parameter for parameter in parameters if parameter.param_type_name == "option"]
    lines = [f"## {' '.join(words[1:])}", "", f"`{usage}{' [OPTIONS]' if options else ''}`", ""]
    lines += [(command.help or "").strip(), ""]
    if arguments:
        rows = [[f"`{_metavar(found)}`", found.help or ""] for found in arguments]
        lines += [*table(["argument", "meaning"], rows), ""]
    if options:
        rows = [[f"`{', '.join(found.opts)}`", _default(found), found.help or ""] for found in options]
        lines += [*table(["option", "default", "meaning"], rows), ""]
    return lines


def _metavar(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _argument(argument: Any) -> str:
    text = _metavar(argument) + ("..." if argument.nargs == -1 else "")
    return text if argument.required else f"[{text}]"


def _default(option: Any) -> str:
    value = option.default
    if option.required:
        return "required"
    if value is None or value is False or value == () or callable(value) or type(value).__name__ == "Sentinel":
        return ""
    return f"`{value}`"
