"""Documents that must agree with the code and with each other."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
GLOSSARY = [
    line.removeprefix("## ") for line in (DOCS / "glossary.md").read_text().splitlines() if line.startswith("## ")
]
# The words of the design: each has its place in the glossary.
WORDS = (
    "stream", "root", "site", "link", "subscription", "filter", "projection", "resolution", "quality", "policy",
    "context", "class", "block", "manifest", "coverage", "plan", "epoch", "ledger", "drop", "delay", "expired",
    "reduced", "digest", "catalog", "snapshot", "relay",
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


@pytest.mark.parametrize("page", sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")))
def test_links_between_pages_lead_somewhere(page: str) -> None:
    text = re.sub(r"```.*?```", "", (DOCS / page).read_text(), flags=re.DOTALL)
    targets = [target.split("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    missing = [target for target in targets if target and not (DOCS / page).parent.joinpath(target).exists()]
    assert missing == []


def test_decisions_have_a_number_each() -> None:
    names = [path.name for path in (DOCS / "decisions").glob("*.md")]
    assert all(re.fullmatch(r"\d{3}-[a-z0-9-]+\.md", name) for name in names)
    assert len({name[:3] for name in names}) == len(names)
