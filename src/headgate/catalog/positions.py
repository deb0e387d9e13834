"""YAML read with the place of every key and value, and with limits that stop a hostile file before it costs anything.

The file is read as events, not as objects: nothing is constructed from tags, nesting is a loop and not a recursion, and
aliases are expanded under a budget. Plain scalars follow the core schema of YAML 1.2 (`no` and `12:30` are text), so
that a name or a time of day is not turned into something else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from headgate.catalog.problems import DeploymentError, FileProblem

MAX_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 32
MAX_NODES = 200_000

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_CONSTANTS: dict[str, bool | None] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}

Path = tuple[str | int, ...]
Mark = tuple[int, int]


def dotted(path: Path) -> str:
    """A path as people write it.

    >>> dotted(("links", "pairs", 0, "delay"))
    'links.pairs[0].delay'
    """
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands, where its key stands, and a scalar's text as it was written."""

    value: Mark
    key: Mark
    raw: str | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A file as plain dicts, lists and scalars, and the place of everything in it by its path."""

    name: str
    value: Any
    places: dict[Path, Place]
    lines: tuple[str, ...] = ()
    problems: tuple[FileProblem, ...] = ()

    def problem(
        self, path: Path, message: str, hint: str | None = None, *, key: bool = False, offset: int | None = None
    ) -> FileProblem:
        """A problem at a path, at its key or at a character inside its text.

        A path that is not in the file is placed at what encloses it.
        """
        at = path
        while at not in self.places and at:
            at = at[:-1]
        place = self.places.get(at, Place((1, 1), (1, 1)))
        on_key = key or (at != path and place.raw is None)
        line, column = place.key if on_key else place.value
        if offset is not None and place.raw is not None:
            column += self._inside(place, offset)
        return FileProblem(self.name, line, column, message, hint)

    def _inside(self, place: Place, offset: int) -> int:
        """How far right of a scalar's start one of its characters stands, 0 where quoting or folding hides it."""
        line, column = place.value
        written = self.lines[line - 1][column - 1 :] if line <= len(self.lines) else ""
        for quote in ("", "'", '"'):
            if written.startswith(f"{quote}{place.raw}{quote}"):
                return len(quote) + offset
        return 0


@dataclass(slots=True)
class _Node:
    """A value under construction: `pairs` of a mapping, `items` of a sequence, or a scalar.

    `size` and `depth` count what the value holds with its aliases expanded, so that a bomb is known before it goes off.
    """

    mark: Mark
    raw: str | None = None
    value: Any = None
    items: list[_Node] | None = None
    pairs: list[tuple[_Node, _Node]] | None = None
    anchor: str | None = None
    pending: _Node | None = None
    size: int = 1
    depth: int = 0


def read_document(data: str | bytes, name: str) -> Document:
    """The one document of a YAML text.

    Duplicate keys are listed in `problems` and the first one counts, so that the rest can be checked too.

    Raises:
        DeploymentError: The text is not readable YAML or exceeds a limit.
    """
    text = _decode(data, name)
    try:
        root = _compose(text, name)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        what = error.problem or error.context or "unreadable"
        raise _refused(name, (line, column), f"this is not YAML: {what}", _syntax_hint(text, line, column)) from None
    except yaml.YAMLError as error:
        what = str(error).splitlines()[0]
        raise _refused(name, (1, 1), f"this is not YAML: {what}", "save the file as plain UTF-8 text") from None
    if root is None:
        raise _refused(name, (1, 1), "the file is empty", "a deployment has at least `streams` and `sites`")
    return _Flattening(name).document(root, tuple(text.splitlines()))


def _decode(data: str | bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        what = f"the file has {len(data)} bytes, more than {MAX_BYTES}"
        raise _refused(name, (1, 1), what, "add subscriptions with `headgate subscribe` instead")
    if isinstance(data, str):
        return data.removeprefix("\ufeff")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        mark = (before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
        what = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise _refused(name, mark, what, "save the file in the encoding UTF-8") from None


def _refused(name: str, mark: Mark, message: str, hint: str | None) -> DeploymentError:
    return DeploymentError([FileProblem(name, *mark, message, hint)])


def _syntax_hint(text: str, line: int, column: int) -> str:
    lines = text.splitlines()
    if line <= len(lines) and "\t" in lines[line - 1][:column]:
        return "indent with spaces, not with tabs"
    return "check the indentation, quotes and brackets around this place"


def _compose(text: str, name: str) -> _Node | None:
    """The node tree of the text, built from its events on an explicit stack."""
    anchors: dict[str, _Node] = {}
    stack: list[_Node] = []
    root: _Node | None = None
    for event in _events(text):
        mark = (event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, yaml.DocumentStartEvent):
            if root is not None:
                raise _refused(name, mark, "a second document starts here", "one file holds one deployment")
            continue
        if isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            node = stack.pop()
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                what = f"alias *{event.anchor} has no anchor before it"
                raise _refused(name, mark, what, f"mark the value as &{event.anchor} first, or write it out")
            node = anchors[event.anchor]
        elif isinstance(event, yaml.NodeEvent):
            node = _open(event, mark, name)
            if node.raw is None:
                stack.append(node)
                if len(stack) > MAX_DEPTH:
                    what = f"values are nested more than {MAX_DEPTH} deep"
                    raise _refused(name, mark, what, "a deployment needs less than ten levels")
                continue
        else:
            continue
        if node.anchor is not None:
            anchors[node.anchor] = node
        if stack:
            _attach(stack[-1], node)
            if stack[-1].size > MAX_NODES:
                what = f"the file has more than {MAX_NODES} values, aliases expanded"
                raise _refused(name, mark, what, "add subscriptions with `headgate subscribe` instead")
            if len(stack) + node.depth > MAX_DEPTH:
                what = f"values are nested more than {MAX_DEPTH} deep, aliases expanded"
                raise _refused(name, mark, what, "a deployment needs less than ten levels")
        else:
            root = node
    return root


def _events(text: str) -> Iterator[Any]:
    yield from yaml.parse(text, Loader=_LOADER)


def _open(event: Any, mark: Mark, name: str) -> _Node:
    if event.tag is not None and event.tag != "!":
        raise _refused(name, mark, f"the tag {event.tag!r} is not read here", "write the plain value without a tag")
    if isinstance(event, yaml.MappingStartEvent):
        return _Node(mark, pairs=[], anchor=event.anchor)
    if isinstance(event, yaml.SequenceStartEvent):
        return _Node(mark, items=[], anchor=event.anchor)
    value = _scalar(event.value) if event.implicit[0] else event.value
    return _Node(mark, raw=event.value, value=value, anchor=event.anchor)


def _scalar(text: str) -> Any:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INT.fullmatch(text):
        return int(text)
    number = float(text) if _FLOAT.fullmatch(text) else math.inf
    return number if math.isfinite(number) else text


def _attach(parent: _Node, node: _Node) -> None:
    parent.size += node.size
    parent.depth = max(parent.depth, node.depth + 1)
    if parent.items is not None:
        parent.items.append(node)
    elif parent.pending is None:
        parent.pending = node
    else:
        assert parent.pairs is not None
        parent.pairs.append((parent.pending, node))
        parent.pending = None


class _Flattening:
    """Turns nodes into plain values and notes their places. Size and depth are known to be within the limits."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._places: dict[Path, Place] = {}
        self._problems: list[FileProblem] = []

    def document(self, root: _Node, lines: tuple[str, ...]) -> Document:
        value = self._value(root, root.mark, ())
        return Document(self._name, value, self._places, lines, tuple(self._problems))

    def _value(self, node: _Node, key: Mark, path: Path) -> Any:
        self._places[path] = Place(node.mark, key, node.raw)
        if node.items is not None:
            return [self._value(item, item.mark, (*path, index)) for index, item in enumerate(node.items)]
        return node.value if node.pairs is None else self._mapping(node.pairs, path)

    def _mapping(self, pairs: list[tuple[_Node, _Node]], path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            name = key.raw
            if not name:
                what = "a key is empty" if name == "" else "a key is not a plain name"
                self._problems.append(FileProblem(self._name, *key.mark, what, "write `name: value`"))
            elif name in found:
                first = self._places[(*path, name)].key[0]
                what = f"duplicate key {name!r}, first given in line {first}"
                self._problems.append(FileProblem(self._name, *key.mark, what, "rename or remove one of the two"))
            else:
                found[name] = self._value(value, key.mark, (*path, name))
        return found
