"""One name for one thing: class names that are used more than once, and the list of those that still are."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = (ROOT / "src" / "headgate", ROOT / "studies" / "src" / "headgate_studies")
# How often each is used today. The list only gets shorter: rename one where it means least, and take it off.
STILL_REPEATED: dict[str, int] = {}


def repeated() -> dict[str, int]:
    """Names of public classes that two or more modules of both distributions define, and how many do."""
    found: Counter[str] = Counter()
    for package in PACKAGES:
        for path in package.rglob("*.py"):
            found.update(set(re.findall(r"^ *class ([A-Za-z]\w*)[(:\[]", path.read_text(), re.MULTILINE)))
    return {name: count for name, count in found.items() if count > 1}


def test_no_class_name_is_used_for_another_thing_again() -> None:
    now = repeated()
    new = {name: count for name, count in now.items() if count > STILL_REPEATED.get(name, 1)}
    assert new == {}, "find another name, a noun of the domain (docs/glossary.md)"


def test_names_that_are_used_once_are_off_the_list() -> None:
    now = repeated()
    stale = {name: now.get(name, 1) for name, count in STILL_REPEATED.items() if now.get(name, 1) < count}
    assert stale == {}, "shorten the list: this is how often they are used now"
