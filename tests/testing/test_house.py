"""The figures of a tree: what counts as repeated, as dead, as crowded."""

from pathlib import Path

import pytest

from headgate_studies.testing.house import figures, lines_by_package, walks

ROOT = Path(__file__).parents[2]
RUN = "\n".join(f"    value = value * {number} + 1" for number in range(6))


def tree(root: Path) -> Path:
    package = root / "src" / "headgate" / "room"
    package.mkdir(parents=True)
    wide = ", ".join(f"p{number}" for number in range(9))
    (package / "one.py").write_text(
        f"class Twice:\n    x = 1\n\ndef used(value):\n{RUN}\n\ndef dead({wide}):\n    pass\n"
    )
    (package / "two.py").write_text(f"class Twice:\n    x = 2\n\ndef other(value):\n{RUN}\n    used(other)\n")
    (root / "docs").mkdir()
    page = "# Walk\n\n## A row\n[`used`](../src/headgate/room/one.py), [`other`](../src/headgate/room/two.py)\n"
    (root / "docs" / "walkthrough.md").write_text(page)
    return root


def test_figures_of_a_small_tree(tmp_path: Path) -> None:
    found = figures(tree(tmp_path))
    assert found["modules of headgate"] == 2
    assert found["class names that more than one module defines"] == 1
    assert found["functions with more than 8 parameters"] == 1
    assert found["functions and classes of headgate that nothing mentions"] == 1
    assert found["runs of 6 lines that stand again elsewhere"] == 1
    assert lines_by_package(tmp_path) == {"headgate.room": (2, 24)}
    assert walks(tmp_path) == {"A row": (2, 2)}


@pytest.mark.long
def test_nothing_of_the_product_is_dead() -> None:
    assert figures(ROOT)["functions and classes of headgate that nothing mentions"] == 0
