"""Broken deployment files, each with what `headgate check` says about it in the `.txt` beside it."""

import json
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from headgate.cli.app import main
from headgate.cli.check import register
from headgate.cli.groups import Program

BROKEN = Path(__file__).parents[1] / "data" / "broken"
FILES = sorted(path.name for path in BROKEN.glob("*.yaml"))


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    """The command alone, in an application that is made once."""
    made = Program()
    made.callback()(lambda: None)
    register(made)
    return made


def check(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["headgate", "check", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


@pytest.mark.parametrize("name", FILES)
def test_every_problem_has_its_place_and_its_fix(name: str, app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BROKEN)
    result = CliRunner().invoke(app, ["check", name])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (BROKEN / name).with_suffix(".txt").read_text()


def test_there_are_enough_of_them() -> None:
    assert len(FILES) >= 20


def test_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(BROKEN)
    assert check(monkeypatch, "unit-missing.yaml", "--json") == 2
    assert json.loads(capsys.readouterr().out) == {
        "file": "unit-missing.yaml",
        "ok": False,
        "problems": [
            {
                "file": "unit-missing.yaml",
                "line": 10,
                "column": 18,
                "message": "sites.oslo.upload: 2 has no unit",
                "hint": "write a bandwidth such as `2 Mbit/s`",
            }
        ],
    }


def test_a_good_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    text = "sites: {oslo: }\nstreams: {t: {root: oslo, schema: {v: double}, source: {format: json}}}\n"
    (tmp_path / "good one.yaml").write_text(text)
    assert check(monkeypatch, "good one.yaml") == 0
    assert capsys.readouterr().out == "good one.yaml: OK: 1 stream, 1 site, 0 subscriptions\n"
    assert check(monkeypatch, "good one.yaml", "--json") == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


def test_a_file_that_is_not_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(monkeypatch, "nowhere.yaml") == 2
    assert "cannot read 'nowhere.yaml': no such file or directory" in capsys.readouterr().err
