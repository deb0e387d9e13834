"""Commands of other distributions: those that are installed work, those of the laboratory say how to get them."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from headgate.cli import extensions
from headgate.cli.groups import Program
from headgate.errors import HeadgateError

ROOT = Path(__file__).parents[2]


def application(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> typer.Typer:
    monkeypatch.setattr(extensions, "entry_points", lambda group: points if group == extensions.GROUP else ())
    app = Program()
    app.command("other")(lambda: None)
    extensions.register(app)
    return app


@pytest.mark.parametrize("arguments", [["study"], ["study", "run", "x", "--seeds", "3"], ["bench", "matching"]])
def test_without_the_laboratory_its_commands_say_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    result = CliRunner().invoke(application(monkeypatch), arguments)
    assert isinstance(result.exception, HeadgateError)
    assert f"`headgate {arguments[0]}` is part of headgate-studies, which is not installed" in str(result.exception)
    assert "pip install headgate-studies" in str(result.exception)


def test_what_the_laboratory_registers_is_what_the_product_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((ROOT / "studies" / "pyproject.toml").read_text())["project"]
    declared = project["entry-points"][extensions.GROUP]
    assert set(declared) == set(extensions.LABORATORY)
    points = [EntryPoint(name, value, extensions.GROUP) for name, value in declared.items()]
    app = application(monkeypatch, *points)
    listed = CliRunner().invoke(app, ["study", "list"])
    assert listed.exit_code == 0
    assert "filter-burst" in listed.output
    assert "matching" in CliRunner().invoke(app, ["bench"]).output


def test_an_entry_point_that_cannot_be_loaded_stops_only_its_own_command(monkeypatch: pytest.MonkeyPatch) -> None:
    app = application(monkeypatch, EntryPoint("mine", "no_such_module:register", extensions.GROUP))
    assert CliRunner().invoke(app, ["other"]).exit_code == 0
    error = CliRunner().invoke(app, ["mine", "--fast"]).exception
    assert isinstance(error, HeadgateError)
    assert "the command 'mine' of no_such_module:register cannot be loaded" in str(error)


def test_both_distributions_have_one_version() -> None:
    product = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    laboratory = tomllib.loads((ROOT / "studies" / "pyproject.toml").read_text())["project"]
    assert laboratory["version"] == product
    assert f"headgate[all]=={product}" in laboratory["dependencies"]
