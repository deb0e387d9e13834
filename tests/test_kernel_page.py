"""docs/kernels.md names every array of the planner's and the matcher's kernels."""

import re
from pathlib import Path

import pytest

from headgate.matching.compiled import tree
from headgate.planning import net

PAGE = (Path(__file__).parents[1] / "docs" / "kernels.md").read_text()


@pytest.mark.parametrize("arrays", [net.Net, tree.BoxTree])
def test_every_array_is_in_the_table(arrays: type) -> None:
    part = PAGE.partition(f"`{arrays.__name__}`\n\n")[2].partition("\n## ")[0]
    named = {name for row in re.findall(r"^\| (`.*?) \|", part, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert named == set(arrays._fields)


def test_constants_are_those_of_the_code() -> None:
    for name in re.findall(r"`([A-Z][A-Z_]+)`", PAGE):
        assert hasattr(net, name) or hasattr(tree, name), name
