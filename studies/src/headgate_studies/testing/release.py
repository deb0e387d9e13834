"""Make a release: ``python -m headgate_studies.testing.release 1.2.0`` shows it, with ``--do`` it is done.

A release moves what stands under "Unreleased" in the changelog below a heading with the version and the day, writes the
version wherever one stands, commits that and tags it. It pushes nothing.
"""

from __future__ import annotations

import argparse
import difflib
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from headgate.errors import HeadgateError

VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
# Every place where the version stands, as a pattern with the version as its only group.
PLACES: tuple[tuple[str, str], ...] = (
    ("pyproject.toml", r'(?m)^version = "([\d.]+)"$'),
    ("studies/pyproject.toml", r'(?m)^version = "([\d.]+)"$'),
    ("studies/pyproject.toml", r'"headgate\[all\]==([\d.]+)"'),
    ("src/headgate/__init__.py", r'(?m)^__version__ = "([\d.]+)"$'),
)
UNRELEASED = "## [Unreleased]\n"


class ReleaseError(HeadgateError):
    """A release that cannot be made as things are."""


def current_version(root: Path) -> str:
    """The version that all places agree on."""
    found = {f"{file}: {_only(root / file, pattern)}" for file, pattern in PLACES}
    versions = {each.rpartition(" ")[2] for each in found}
    if len(versions) != 1:
        raise ReleaseError("the version is not the same everywhere: " + ", ".join(sorted(found)), hint="make it so")
    return versions.pop()


def changed_files(root: Path, version: str, day: str) -> dict[str, str]:
    """The text of every file that a release changes, by its name."""
    before = current_version(root)
    if VERSION.fullmatch(version) is None:
        raise ReleaseError(f"{version!r} is not a version", hint="write three numbers, such as 1.2.0")
    if _parts(version) <= _parts(before):
        raise ReleaseError(f"version {version} does not follow {before}")
    texts: dict[str, str] = {}
    for file, pattern in PLACES:
        text = texts.get(file, (root / file).read_text(encoding="utf-8"))
        texts[file] = re.sub(pattern, lambda match: match[0].replace(match[1], version), text)
    log = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    _, heading, rest = log.partition(UNRELEASED)
    notes = re.split(r"(?m)^## ", rest)[0]
    if not heading or not notes.strip():
        raise ReleaseError("nothing stands under [Unreleased] in CHANGELOG.md", hint="say there what users will notice")
    texts["CHANGELOG.md"] = log.replace(UNRELEASED, f"{UNRELEASED}\n## [{version}] - {day}\n", 1)
    return texts


def release(root: Path, version: str, *, do: bool, day: str) -> str:
    """Make a release, or only say what it would change."""
    texts = changed_files(root, version, day)
    if not do:
        return "".join(_diff(file, (root / file).read_text(encoding="utf-8"), text) for file, text in texts.items())
    if _git(root, "status", "--porcelain").strip():
        raise ReleaseError("there are changes that are not committed", hint="commit or remove them first")
    if _git(root, "tag", "--list", f"v{version}").strip():
        raise ReleaseError(f"there is a tag v{version} already")
    for file, text in texts.items():
        (root / file).write_text(text, encoding="utf-8")
    _git(root, "add", *texts)
    _git(root, "commit", "--quiet", "--message", f"Release {version}")
    _git(root, "tag", "--annotate", f"v{version}", "--message", f"Headgate {version}")
    return f"committed and tagged as v{version}; `git push --follow-tags` publishes it\n"


def _only(path: Path, pattern: str) -> str:
    found = re.findall(pattern, path.read_text(encoding="utf-8"))
    if len(found) != 1:
        raise ReleaseError(f"{path.name} has {len(found)} versions where one is expected ({pattern})")
    return str(found[0])


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _diff(file: str, before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{file}", f"b/{file}", n=1)
    return "".join(lines)


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)  # noqa: S607
    if done.returncode != 0:
        raise ReleaseError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout


def main(arguments: list[str]) -> int:
    """Read the command line; an error is one line and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m headgate_studies.testing.release", description="Make a release.")
    parser.add_argument("version", help="three numbers, such as 1.2.0")
    parser.add_argument("--do", action="store_true", help="do it; otherwise only show it")
    given = parser.parse_args(arguments)
    try:
        said = release(Path.cwd(), given.version, do=given.do, day=f"{datetime.now(UTC):%Y-%m-%d}")
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 2
    print(said, end="")
    if not given.do:
        print(
            "\nNothing was changed. Do it with --do (make release VERSION=... DO=1), after `make lint types test-all`."
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
