"""The documents as a site: it builds without a warning, and what stands in code blocks is true."""

import ast
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
import yaml

from headgate.cli.groups import Program

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if "reference" not in path.relative_to(DOCS).parts]
OUTSIDE = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "examples/README.md")
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text() for path in [*(ROOT / page for page in OUTSIDE), *PAGES]}
# What filters of pages are about; a page that asks for another column adds it here.
COLUMNS = {
    "temperature": "double",
    "lat": "double",
    "lon": "double",
    "station": "string",
    "at": "timestamp",
}
CONTEXT = {"position": "struct<lat: double, lon: double>", "watch": "array<string>"}


def blocks(page: str, *kinds: str) -> list[str]:
    return [match[3] for match in FENCE.finditer(TEXTS[page]) if match[2] in kinds]


@pytest.mark.parametrize("page", [page for page in TEXTS if blocks(page, "python")])
def test_python_in_a_page_is_python(page: str) -> None:
    for block in blocks(page, "python"):
        code = "\n".join(line.removeprefix(">>> ").removeprefix("... ") for line in block.splitlines())
        compile(code, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("page", [page for page in TEXTS if blocks(page, "json")])
def test_json_in_a_page_is_json(page: str) -> None:
    """A block is a document, or one on every line."""
    for block in blocks(page, "json"):
        try:
            json.loads(block)
        except ValueError:
            for line in block.splitlines():
                json.loads(line)


@pytest.mark.parametrize("page", [page for page in TEXTS if blocks(page, "toml")])
def test_toml_in_a_page_is_toml(page: str) -> None:
    assert all(tomllib.loads(block) for block in blocks(page, "toml"))


@pytest.mark.parametrize("page", [page for page in TEXTS if blocks(page, "sql")])
def test_sql_in_a_page_is_a_filter(page: str) -> None:
    from headgate.filters import parse_filter
    from headgate.model import Schema
    from headgate.model.schema import parse_type

    context = {name: parse_type(text) for name, text in CONTEXT.items()}
    for block in blocks(page, "sql"):
        for line in block.splitlines():
            assert parse_filter(line, Schema.of(COLUMNS), context).columns


def _whole(document: object) -> bool:
    """Whether a block is a deployment file and not a piece of one, which may leave things out as `...`."""
    return isinstance(document, dict) and {"streams", "sites"} <= document.keys()


@pytest.mark.parametrize("page", [page for page in TEXTS if blocks(page, "yaml")])
def test_yaml_in_a_page_is_yaml_and_whole_deployment_files_are_right(page: str) -> None:
    from headgate.catalog import parse_deployment
    from headgate.pipeline.sources import GENERATOR_SCHEMAS

    for block in blocks(page, "yaml"):
        document = yaml.safe_load(block)
        if _whole(document):
            assert parse_deployment(block, page, GENERATOR_SCHEMAS).streams


def test_every_guide_has_a_whole_deployment_file() -> None:
    guides = [page for page in TEXTS if "/howto/" in page]
    assert len(guides) >= 7
    assert all(any(_whole(yaml.safe_load(block)) for block in blocks(page, "yaml")) for page in guides)


@pytest.fixture(scope="module")
def program() -> click.Group:
    import importlib

    from typer.main import get_command

    from headgate.cli.app import COMMANDS

    app = Program()
    for module in COMMANDS:
        importlib.import_module(module).register(app)
    return get_command(app)


COMMAND = re.compile(r"(?:^|`)(?:\$ )?headgate ((?:[^`#\n|&;]|(?<=\S)[#|])+)", re.MULTILINE)


def _wrong(program: click.Group, line: str) -> str | None:
    """What is wrong with a command line in a page: no such command, or an option that it does not have."""
    try:
        words = shlex.split(line.replace("...", "").rstrip("\\"))
    except ValueError:
        return None  # cut off in the middle of a quotation, as pages may
    command: click.Command = program
    while words and hasattr(command, "commands"):
        if words[0].startswith("-"):
            return None
        if words[0] not in command.commands:
            return f"no command {words[0]!r}" if re.fullmatch(r"[a-z][a-z-]*", words[0]) else None
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    unknown = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return next((f"no option {word}" for word in unknown if word not in known | {"--help"}), None)


@pytest.mark.parametrize("page", list(TEXTS))
def test_commands_in_a_page_exist_with_their_options(program: click.Group, page: str) -> None:
    text = FENCE.sub(lambda match: "" if match[2] == "python" else match[0], TEXTS[page])
    lines = [match[1] for match in COMMAND.finditer(text)]
    assert [(line, wrong) for line in lines if (wrong := _wrong(program, line))] == []


@pytest.mark.parametrize("page", list(TEXTS))
def test_targets_and_modules_in_a_page_exist(page: str) -> None:
    """What `make` and `python -m` are called with."""
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shell = "\n".join(blocks(page, "", "console"))
    called = [
        *re.findall(r"^(?:\$ )?make ([a-z][a-z -]*)(?=$| *#| [A-Z])", shell, re.MULTILINE),
        *re.findall(r"`make ([a-z][a-z -]*)", TEXTS[page]),
    ]
    assert {word for words in called for word in words.split()} - targets == set()
    modules = re.findall(r"python -m ((?:headgate|headgate_studies)[\w.]*)", TEXTS[page])
    assert [name for name in modules if importlib.util.find_spec(name.rstrip(".")) is None] == []


def test_the_counts_of_the_papers_are_those_of_the_studies() -> None:
    row = r"^\| \[([a-z-]+)\]\(studies/\1/README.md\) \| (\d+) \| (\d+) \| (\d+) \|$"
    rows = re.findall(row, TEXTS["docs/papers.md"], re.MULTILINE)
    verdicts = ("reproduces", "in part", "does not reproduce")
    found = {name: tuple(map(int, counts)) for name, *counts in rows}
    expected = {}
    for path in (DOCS / "studies").glob("*/README.md"):
        last = re.findall(r"\| ([^|]+) \|$", path.read_text(), re.MULTILINE)
        expected[path.parent.name] = tuple(last.count(verdict) for verdict in verdicts)
    assert found == expected


def test_studies_with_few_seeds_are_named_as_such() -> None:
    row = r"^\| \[([a-z-]+)\]\(studies/\1/README.md\) \| (\d+) \|$"
    named = {name: int(seeds) for name, seeds in re.findall(row, TEXTS["docs/papers.md"], re.MULTILINE)}
    pages = {path.parent.name: path.read_text() for path in (DOCS / "studies").glob("*/README.md")}
    seeds = {name: int(re.findall(r"times (\d+) seeds", text)[0]) for name, text in pages.items()}
    assert named == {name: count for name, count in seeds.items() if count < 8}


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_asks_no_other_host(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    loads = re.compile(r"""<(?:script|link|img|iframe)[^>]+(?:src|href)=["']?(?:https?:)?//[^"' >]+""")
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 80
    assert [(page.name, loads.findall(page.read_text())) for page in pages if loads.search(page.read_text())] == []
    shown = json.loads((tmp_path / "search" / "search_index.json").read_text())
    assert any("matched = delivered" in entry["text"] for entry in shown["docs"])
