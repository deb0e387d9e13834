"""The examples in docstrings give what they say.

Only modules with an example are imported, by the worker that runs them: collecting doctests of all modules would
import all of both distributions in every worker.
"""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = (ROOT / "src", ROOT / "studies" / "src")


def examples() -> list[str]:
    """Modules with an example in a docstring."""
    return [
        path.relative_to(source).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        for source in SOURCES
        for path in sorted(source.rglob("*.py"))
        if ">>> " in path.read_text()
    ]


@pytest.mark.parametrize("module", examples())
def test_examples(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0, "'>>>' stands somewhere else than in a docstring"
    assert found.failed == 0, "see what was printed"
