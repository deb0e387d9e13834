"""The worked examples of docs/contributing.md, applied to a copy of the product as they stand there, and tried."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "contributing.md").read_text()
BLOCK = re.compile(
    r'^### (?P<heading>[^\n]+)$|^```(?P<kind>\w+) title="(?P<title>[^"]+)"\n(?P<body>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
RUN = """
import json, sys, traceback
for heading, code in json.load(sys.stdin):
    try:
        exec(compile(code, heading, "exec"), {"__name__": heading})
        found = ""
    except BaseException:
        found = traceback.format_exc()
    print(json.dumps([heading, found]))
"""


def _blocks() -> list[tuple[str, str, str, str]]:
    """Heading, kind, title and text of every titled block."""
    found, heading = [], ""
    for match in BLOCK.finditer(PAGE):
        if match["heading"]:
            heading = match["heading"]
        else:
            found.append((heading, match["kind"], match["title"], match["body"]))
    return found


BLOCKS = _blocks()
TRIED = [heading for heading, _, title, _ in BLOCKS if title == "try"]


def _apply(path: Path, diff: str) -> None:
    """Replace what a diff shows as it was by what it shows as it is; it must stand there exactly once."""
    lines = [line or " " for line in diff.splitlines()]
    old = "".join(line[1:] + "\n" for line in lines if line[0] in " -")
    new = "".join(line[1:] + "\n" for line in lines if line[0] in " +")
    text = path.read_text()
    assert text.count(old) == 1, f"{path} has {text.count(old)} times:\n{old}"
    path.write_text(text.replace(old, new))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The product with all examples in it."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("src", "examples", "tests", "studies/src"):
        shutil.copytree(ROOT / name, copy / name, copy_function=shutil.copy2)
    shutil.copy2(ROOT / "pyproject.toml", copy)
    (copy / "docs").mkdir()
    for name in ("policies.md", "sources.md"):
        shutil.copy2(ROOT / "docs" / name, copy / "docs")
    for _, kind, title, body in BLOCKS:
        if title != "try" and kind == "diff":
            _apply(copy / title, body)
        elif title != "try":
            assert not (copy / title).exists(), f"{title} is there already"
            (copy / title).write_text(body)
    return copy


@pytest.fixture(scope="module")
def tried(copy: Path) -> dict[str, str]:
    """What each example failed with, or nothing."""
    examples = [[heading, body] for heading, _, title, body in BLOCKS if title == "try"]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    command = [sys.executable, "-c", RUN]
    done = subprocess.run(
        command, input=json.dumps(examples), env=environment, cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("heading", TRIED)
def test_a_worked_example_is_true(tried: dict[str, str], heading: str) -> None:
    assert tried[heading] == "", tried[heading]


@pytest.mark.slow
def test_the_tests_that_ask_for_vectors_lists_and_pages_are_content_with_the_examples(copy: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy / 'studies' / 'src'}"}
    chosen = "outliers or spread or vectors or measured or known_wherever or checked_where"
    files = ["tests/reduction/test_reduction_golden.py", "tests/pipeline/test_sources.py"]
    command = [sys.executable, "-m", "pytest", *files, "-v", "-p", "no:cacheprovider", "-k", chosen]
    done = subprocess.run(command, env=environment, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("outliers-0", "spread-0", "tide", "lines"):
        assert f"[{name}] PASSED" in done.stdout, done.stdout


def test_there_is_an_example_of_each_thing_that_people_add() -> None:
    assert TRIED == [
        "A filter function",
        "A reduction filter",
        "A digester",
        "A source",
        "A source with offsets of its own",
        "A profile type",
        "A move of the planner",
        "A command",
    ]


def test_every_target_that_the_page_names_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", PAGE)) <= targets
    assert targets - {"help", "check", "clean", "chaos-spine", "chaos-machines", "simulate-mutants"} <= set(
        re.findall(r"make ([a-z-]+)", PAGE) + re.findall(r"`make lint`, `make (types)`", PAGE)
    )
