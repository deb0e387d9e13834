"""The house in figures, before and after: ``python -m headgate_studies.testing.house --before REV``.

Lines and modules by package, class names that two modules define, functions with more than eight parameters, functions
and classes that nothing mentions, six lines that stand twice, and how much somebody opens who follows the three walks
of docs/walkthrough.md. `--roles` adds what an install by role costs now. Everything is read from the files of a tree;
an earlier one is taken out of git.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PARAMETERS, RUN_LINES = 8, 6
# What others call by a name that is put together: handlers of events, contract tests, Python's own methods.
_CALLED = re.compile(r"^(_?visit_|_?on_|do_|test_|emit$|__)")


def sources(root: Path) -> dict[str, Path]:
    """The distributions of a tree that has one or two of them, by name."""
    known = {"headgate": root / "src" / "headgate", "headgate_studies": root / "studies" / "src" / "headgate_studies"}
    return {name: path for name, path in known.items() if path.is_dir()}


def modules(root: Path) -> Iterator[tuple[str, str, str]]:
    """Distribution, package and text of every module."""
    for distribution, source in sources(root).items():
        for path in sorted(source.rglob("*.py")):
            parts = path.relative_to(source).parts
            yield distribution, parts[0].removesuffix(".py") if len(parts) == 1 else parts[0], path.read_text()


def lines_by_package(root: Path) -> dict[str, tuple[int, int]]:
    """Modules and lines of every package."""
    found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for distribution, package, text in modules(root):
        name = f"{distribution}.{package}"
        found[name] = (found[name][0] + 1, found[name][1] + text.count("\n"))
    return dict(found)


def figures(root: Path) -> dict[str, int]:
    """All figures of a tree but those by package."""
    found: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    words: Counter[str] = Counter()
    runs: Counter[tuple[str, ...]] = Counter()
    defined: set[tuple[str, str]] = set()
    for distribution, _, text in modules(root):
        tree = ast.parse(text)
        found[f"modules of {distribution}"] += 1
        found[f"lines of {distribution}"] += text.count("\n")
        public = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        classes.update(name for name in public if not name.startswith("_"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[f"functions with more than {PARAMETERS} parameters"] += _parameters(node) > PARAMETERS
                if not node.decorator_list:  # a decorator may call what it decorates
                    defined.add((distribution, node.name))
            elif isinstance(node, ast.ClassDef):
                defined.add((distribution, node.name))
        words.update(re.findall(r"\w+", text))
        runs.update(_runs(text, tree))
    words.update(_mentions(root))
    found["class names that more than one module defines"] = sum(count > 1 for count in classes.values())
    for distribution in sources(root):
        dead = [name for where, name in defined if where == distribution and _is_dead(name, words)]
        found[f"functions and classes of {distribution} that nothing mentions"] = len(dead)
    found[f"runs of {RUN_LINES} lines that stand again elsewhere"] = sum(count - 1 for count in runs.values())
    return dict(found)


def walks(root: Path) -> dict[str, tuple[int, int]]:
    """Files and functions that each walk of docs/walkthrough.md opens; nothing where there is no such page."""
    page = root / "docs" / "walkthrough.md"
    if not page.exists():
        return {}
    found = {}
    for part in page.read_text().split("\n## ")[1:]:
        links = re.findall(r"\[`([\w.]+)`\]\((\.\./src/[\w/]+\.py)\)", part)
        found[part.partition("\n")[0]] = (len({file for _, file in links}), len({name for name, _ in links}))
    return found


def _mentions(root: Path) -> Counter[str]:
    """Words of tests, examples and pages, each once for every file that has it."""
    found: Counter[str] = Counter()
    for folder in ("tests", "examples", "docs"):
        for path in sorted((root / folder).rglob("*.*")):
            if path.suffix in (".py", ".md", ".toml"):
                found.update(set(re.findall(r"\w+", path.read_text())))
    return found


def _is_dead(name: str, words: Counter[str]) -> bool:
    """Whether a name stands only where it is defined; `_kill` is also called by who puts it together from `kill`."""
    plain = name.strip("_")
    return words[name] == 1 and (plain == name or not words[plain]) and not _CALLED.match(name)


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def _runs(text: str, tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """Every run of lines with code that ends a block or begins one: imports, comments and brackets do not count."""
    imports = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    code = [line.strip() for number, line in enumerate(text.splitlines(), 1) if number not in imports]
    code = [line for line in code if len(line) > 4 and not line.startswith(("#", '"""'))]
    for at in range(len(code) - RUN_LINES + 1):
        yield tuple(code[at : at + RUN_LINES])


def print_table(before: Path | None, after: Path, name: str) -> None:
    """The figures of both trees side by side, as a table in Markdown."""
    first, last = figures(before) if before else {}, figures(after)
    print(f"| figure | {name} | now |\n|---|---|---|")
    for key in dict.fromkeys((*first, *last)):
        print(f"| {key} | {first.get(key, 0):,} | {last.get(key, 0):,} |")
    for walk, (files, functions) in walks(after).items():
        old = walks(before).get(walk) if before else None
        was = f"{old[0]} files, {old[1]} functions" if old else "no such page"
        print(f"| {walk}, followed by the walkthrough | {was} | {files} files, {functions} functions |")
    print(f"\n| package | modules, {name} | lines | modules, now | lines |\n|---|---|---|---|---|")
    packages = lines_by_package(before) if before else {}
    now = lines_by_package(after)
    for package in sorted({*packages, *now}):
        (old_modules, old_lines), (new_modules, new_lines) = packages.get(package, (0, 0)), now.get(package, (0, 0))
        print(f"| `{package}` | {old_modules} | {old_lines:,} | {new_modules} | {new_lines:,} |")


def take_out(revision: str, place: Path) -> Path:
    """The files of a revision of this repository, in a directory."""
    git: Any = subprocess.run(["git", "archive", revision], capture_output=True, check=True)  # noqa: S607 (git of the path)
    with tarfile.open(fileobj=io.BytesIO(git.stdout)) as archive:
        archive.extractall(place, filter="data")
    return place


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--before", metavar="REV", help="a revision of git to compare with")
    parser.add_argument(
        "--roles", action="store_true", help="also what an install by role costs, as `headgate bench roles`"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        before = take_out(given.before, Path(place)) if given.before else None
        print_table(before, Path.cwd(), given.before or "before")
    if given.roles:
        from headgate_studies.bench.roles import run

        run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
