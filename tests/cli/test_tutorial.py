"""The tutorial: its file, its data and what it says is printed, on the suite's Spark and NATS."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headgate.cli.check import check

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


def _blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", TEXT, flags=re.DOTALL)


def _printed(command: str) -> list[str]:
    """What the tutorial shows below a command."""
    for block in _blocks("console"):
        for part in block.split("$ headgate ")[1:]:
            first, *lines = part.splitlines()
            if first == command:
                return lines
    raise LookupError(command)


def test_the_example_is_the_tutorials_file_and_check_says_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text,) = _blocks("yaml")
    assert (ROOT / "examples" / "harbour" / "headgate.yaml").read_text(encoding="utf-8") == text
    monkeypatch.chdir(tmp_path)
    Path("headgate.yaml").write_text(text, encoding="utf-8")
    import typer

    application = typer.Typer()
    application.command()(check)
    result = CliRunner().invoke(application, ["headgate.yaml"])
    assert result.output.splitlines() == _printed("check headgate.yaml")
