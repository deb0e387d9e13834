"""Help pages for people, for every command: no Python type at a flag, arguments in capitals, nothing torn apart."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from headgate.cli.app import COMMANDS
from headgate.cli.groups import Program
from headgate.cli.usage import tidy


def application() -> Any:
    app = Program(name="headgate", rich_markup_mode="rich")
    for module in COMMANDS:
        importlib.import_module(module).register(app)
    return tidy(get_command(app))


def words(command: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield before
    for name, inner in getattr(command, "commands", {}).items():
        yield from words(inner, (*before, name))


def test_no_page_shows_a_type_of_python(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    command = application()
    pages = list(words(command))
    assert len(pages) > 20
    for arguments in pages:
        with pytest.raises(SystemExit) as end:
            command([*arguments, "--help"], prog_name="headgate")
        page = capsys.readouterr().out
        assert end.value.code == 0
        assert f"Usage: {' '.join(('headgate', *arguments))}" in " ".join(page.split())
        assert "<bool>" not in page, arguments
        if arguments == ("tail",):
            assert "NAME" in page
            assert "subscription has one reader at a time" in " ".join(page.split())
