"""A dataclass as a parameter of a command is one option per field."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from headgate.cli.groups import Program
from headgate.cli.options import HERE, ConnectionOptions


@dataclass(frozen=True)
class Window:
    seconds: Annotated[float, typer.Option("--seconds", min=0.0)] = 5.0
    whole: Annotated[bool, typer.Option("--whole")] = False


WINDOW = Window()


def asked(*arguments: str) -> tuple[int, str]:
    program = Program(add_completion=False)

    @program.command("show")
    def show(name: str, window: Window = WINDOW, at: ConnectionOptions = HERE) -> None:
        typer.echo(f"{name} {window.seconds} {window.whole} {at.state_dir} {at.nats} {at.namespace}")

    @program.command("other")
    def other() -> None:
        """Nothing."""

    result = CliRunner().invoke(program, ["show", *arguments])
    return result.exit_code, result.output


def test_fields_are_options_with_their_defaults() -> None:
    assert asked("a") == (0, "a 5.0 False .headgate None hg\n")


def test_fields_are_given_by_name() -> None:
    given = ["a", "--seconds", "2", "--whole", "--state-dir", "there", "--nats", "nats://x", "--namespace", "n"]
    assert asked(*given) == (0, "a 2.0 True there nats://x n\n")


def test_checks_of_an_option_hold() -> None:
    code, output = asked("a", "--seconds=-1")
    assert code == 2
    assert "--seconds" in output


def test_a_command_can_be_called_with_the_object() -> None:
    program = Program()

    @program.command("place")
    def place(at: ConnectionOptions = HERE) -> Path:
        return at.state_dir

    assert place(ConnectionOptions(Path("there"))) == Path("there")


def test_a_group_is_no_command() -> None:
    with pytest.raises(TypeError, match="Window is a group of options"):
        Program().command("window")(Window)
