"""Documents that must agree with the code and with each other."""

import re
from functools import cache
from pathlib import Path

import pymdownx.slugs
import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
OUTSIDE = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "examples/README.md")
GLOSSARY = [
    line.removeprefix("## ") for line in (DOCS / "glossary.md").read_text().splitlines() if line.startswith("## ")
]
slugify = pymdownx.slugs.slugify(case="lower")
# The words of the design: each has its place in the glossary.
WORDS = (
    "stream", "root", "site", "link", "subscription", "filter", "projection", "resolution", "quality", "policy",
    "context", "class", "block", "manifest", "coverage", "plan", "epoch", "ledger", "drop", "delay", "expired",
    "reduced", "digest", "catalog", "snapshot", "relay", "door", "replica", "member", "witness", "group",
)  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_the_glossary_has_every_word_of_the_design(word: str) -> None:
    assert word.capitalize() in GLOSSARY


def test_the_glossary_is_in_order_and_explains_each_word_once() -> None:
    assert sorted(set(GLOSSARY), key=str.lower) == GLOSSARY


@pytest.mark.parametrize("package", ["site", "stream", "subscription", "plan", "quality", "deployment"])
def test_the_model_speaks_the_glossary(package: str) -> None:
    assert package.capitalize() in GLOSSARY
    assert (DOCS.parent / "src" / "headgate" / "model" / f"{package}.py").exists()


@pytest.mark.parametrize("page", [*OUTSIDE, *sorted(path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md"))])
def test_links_between_pages_lead_somewhere(page: str) -> None:
    """To a file that is there, and to a heading of it where one is named."""
    here = ROOT / page
    text = re.sub(r"```.*?```", "", here.read_text(), flags=re.DOTALL)
    missing = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, heading = target.partition("#")
        there = here.parent.joinpath(file) if file else here
        if "://" not in target and not (
            there.exists() and (not heading or there.suffix != ".md" or heading in headings(there))
        ):
            missing.append(target)
    assert missing == []


@cache
def headings(page: Path) -> set[str]:
    """What a link can name after `#`: headings in lower case, with `-` between their words."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    plain = [
        re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line) for line in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    ]
    return {slugify(line.replace("`", ""), "-") for line in plain}


def test_decisions_have_a_number_each() -> None:
    names = [path.name for path in (DOCS / "decisions").glob("*.md") if path.name != "README.md"]
    assert all(re.fullmatch(r"\d{3}-[a-z0-9-]+\.md", name) for name in names)
    assert len({name[:3] for name in names}) == len(names)


def test_the_index_of_decisions_is_current() -> None:
    from headgate_studies.testing.reference.decisions import decisions_page

    committed = (DOCS / "decisions" / "README.md").read_text()
    assert committed == decisions_page(DOCS / "decisions"), "run `make docs` and commit the page"


def test_every_package_is_a_room_and_what_a_room_names_is_there() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| (`tests/.+`) \|$", (DOCS / "rooms.md").read_text(), flags=re.MULTILINE)
    roots = (DOCS.parent / "src" / "headgate", DOCS.parent / "studies" / "src" / "headgate_studies")
    packages = {path.parent.name for root in roots for path in root.glob("*/__init__.py")}
    assert packages - {"cli"} == {room for room, _ in rows} - {"cli"}
    missing = [
        test for _, tests in rows for test in re.findall(r"`([^`]+)`", tests) if not (DOCS.parent / test).is_dir()
    ]
    assert missing == []


def test_templates_and_hooks_are_sound_and_download_nothing() -> None:
    import yaml

    for path in (DOCS.parent / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        template = yaml.safe_load(path.read_text())
        assert path.name == "config.yml" or {"name", "description", "body"} <= template.keys()
    hooks = yaml.safe_load((DOCS.parent / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in hooks["repos"]] == ["local"]
    assert all(hook["language"] == "system" for repo in hooks["repos"] for hook in repo["hooks"])
