"""Links from the documents into the code: the file is there, and so is the function or class that the link names."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.sources import parsed

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[`([A-Za-z_][\w.]*)`\]\((\.\./[^)#]+\.py)\)")


@cache
def _defined(path: Path) -> frozenset[str]:
    """Functions, classes, methods (as `Class.method`) and values that a module defines."""
    found: set[str] = set()
    for node in parsed(path).body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found.add(node.name)
            case ast.ClassDef():
                functions = (item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef))
                found |= {node.name, *(f"{node.name}.{function.name}" for function in functions)}
            case ast.Assign():
                found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return frozenset(found)


PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if LINK.search(path.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_in_the_code_is_there(page: Path) -> None:
    missing = []
    for name, target in LINK.findall(page.read_text()):
        path = (page.parent / target).resolve()
        if not path.exists() or name not in _defined(path):
            missing.append(f"{name} in {target}")
    assert missing == []


def test_the_walk_has_its_three_parts_and_enough_steps() -> None:
    text = (ROOT / "docs" / "walkthrough.md").read_text()
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert [part.splitlines()[0] for part in parts] == ["A row", "A subscribe", "A plan change"]
    assert all(len(LINK.findall(part)) >= 8 for part in parts)


def test_the_trace_of_the_relays_is_what_the_simulator_prints() -> None:
    shown = re.search(r"```trace\n(.*?)```", (ROOT / "docs" / "walkthrough.md").read_text(), re.DOTALL)
    assert shown is not None
    replay = [sys.executable, "-m", "headgate_studies.testing.simulate", "--replay", "two_paths:0", "--trace"]
    said = subprocess.run(replay, capture_output=True, text=True, check=True, timeout=300).stdout
    printed = iter([" ".join(line.split()[1:]) for line in said.splitlines()])
    missing = [line for line in shown[1].splitlines() if line not in printed]  # in this order
    assert missing == []
