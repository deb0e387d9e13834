"""Pages of the Python API: what each package exports, with signatures and docstrings."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

# Packages whose exports a user of Headgate as a library meets, in the order of the architecture.
PACKAGES = (
    "model", "filters", "matching", "grid", "planning", "reduction", "tuning", "wire", "catalog", "fabric", "relay",
    "pipeline.sources", "feeds", "client",
)  # fmt: skip
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def api_pages() -> dict[str, str]:
    """One page for each package that exists and exports names."""
    found = {}
    for package in PACKAGES:
        name = f"headgate.{package}"
        if importlib.util.find_spec(name) is None:
            continue
        module = importlib.import_module(name)
        if getattr(module, "__all__", None):
            found[f"api/{package}.md"] = _page(name, module)
    return found


def _page(name: str, module: ModuleType) -> str:
    lines = [f"# {name}", "", inspect.getdoc(module) or "", ""]
    for export in sorted(module.__all__):
        lines += _entry(export, getattr(module, export), module)
    return "\n".join(lines)


def _entry(name: str, value: Any, module: ModuleType) -> list[str]:
    if inspect.isclass(value):
        return [f"## {name}", "", *_code(f"class {name}{_signature(value)}"), *_text(value), *_members(value, module)]
    if inspect.isroutine(value):
        return [f"## {name}", "", *_code(f"{name}{_signature(value)}"), *_text(value)]
    return [f"## {name}", "", f"A value of the type `{type(value).__name__}`.", ""]


def _members(kind: type, module: ModuleType) -> Iterator[str]:
    """Public methods and properties of the class, with the first line of what they say.

    Those of a base are with it if that is of the same package and has no entry of its own.
    """
    members: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base is kind or (base.__module__.startswith(f"{module.__name__}.") and base.__name__ not in module.__all__):
            members |= vars(base)
    for name, member in members.items():
        if name.startswith("_"):
            continue
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        about = (inspect.getdoc(member) or "").split("\n\n")[0].replace("\n", " ")
        if inspect.isfunction(function):
            yield f"- `{name}{_signature(function, bound=not isinstance(member, staticmethod))}`: {about}"
        elif isinstance(member, property) or type(member).__name__ == "cached_property":
            yield f"- `{name}`: {about}"
    yield ""


def _signature(value: Any, *, bound: bool = False) -> str:
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = list(found.parameters.values())
    found = found.replace(parameters=parameters[1:] if bound else parameters)
    return _ADDRESS.sub("", str(found)).replace("'", "")


def _code(text: str) -> list[str]:
    return ["```python", text, "```", ""]


def _text(value: Any) -> list[str]:
    """The docstring, with examples in fences."""
    lines: list[str] = []
    fenced = False
    for line in (inspect.getdoc(value) or "").splitlines():
        starts = line.lstrip().startswith(">>>")
        if starts and not fenced:
            lines += ["```python"]
            fenced = True
        elif fenced and not line.strip():
            lines += ["```"]
            fenced = False
        lines.append(line)
    return [*lines, *(["```"] if fenced else []), ""]
