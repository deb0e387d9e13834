"""The committed reference pages are what the code says now."""

from pathlib import Path

import pytest

from headgate.catalog.document import DeploymentEntry, SubscriptionEntry
from headgate.cli.app import COMMANDS
from headgate.filters.functions import FUNCTIONS
from headgate_studies.testing.reference import pages, write_pages
from headgate_studies.testing.reference.__main__ import main

COMMITTED = Path(__file__).parents[2] / "docs" / "reference"


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return pages()


def test_the_committed_pages_are_current(made: dict[str, str]) -> None:
    committed = {path.relative_to(COMMITTED).as_posix(): path.read_text() for path in COMMITTED.rglob("*.md")}
    stale = sorted(name for name in made.keys() | committed.keys() if made.get(name) != committed.get(name))
    assert stale == [], "run `make docs` and commit the pages"


def test_every_key_and_command_and_function_is_there(made: dict[str, str]) -> None:
    for model in (DeploymentEntry, SubscriptionEntry):
        assert all(f"| `{name}` |" in made["deployment-file.md"] for name in model.model_fields)
    assert all(f"## {module.rpartition('.')[2]}" in made["commands.md"] for module in COMMANDS if "check" in module)
    assert all(f"{name}(" in made["filters.md"] or f"`{name}`" in made["filters.md"] for name in FUNCTIONS)


def test_pages_are_the_same_every_time_and_hold_nothing_of_this_machine(made: dict[str, str]) -> None:
    assert pages() == made
    assert not any(" at 0x" in text or str(Path.home()) in text or str(Path.cwd()) in text for text in made.values())


def test_writing_changes_only_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert write_pages(tmp_path) > 3
    assert write_pages(tmp_path) == 0
    (tmp_path / "commands.md").write_text("old")
    (tmp_path / "gone.md").write_text("no longer made")
    assert main([str(tmp_path)]) == 0
    assert "2 pages changed" in capsys.readouterr().out
    assert not (tmp_path / "gone.md").exists()
    assert main([]) == 2
