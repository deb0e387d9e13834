"""Policies in the XML form of the paper's Figure 2 (made well-formed), read into the same policies as the YAML form.

Every condition drops what it is true for, as the paper's text says of WITHIN. Document type declarations are refused,
so that no entity can be expanded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from headgate.model import Schema
from headgate.reduction.errors import PolicyError, unknown
from headgate.reduction.filters import FILTERS
from headgate.reduction.parse import parse_policy
from headgate.reduction.policy import Policy

_DIRECTED = {kind.name: kind.directed for kind in FILTERS}


@dataclass(slots=True)
class _Element:
    tag: str
    attributes: dict[str, str]
    line: int
    children: list[_Element] = field(default_factory=list)

    def needed(self, name: str) -> str:
        if name not in self.attributes:
            raise PolicyError(f"<{self.tag}> has no {name!r}", where=f"line {self.line}", hint=f'write {name}="..."')
        return self.attributes[name]


def parse_policy_xml(text: str, schema: Schema) -> Policy:
    """The policy of an XML text; `PolicyError` names the line.

    >>> text = '<policy><level><filter name="LATEST"><para name="window" value="10"/></filter></level></policy>'
    >>> parse_policy_xml(text, Schema.of({"bpm": "double"})).levels[0].label
    'latest'
    """
    root = _tree(text)
    if root.tag != "policy":
        raise unknown("element", root.tag, ["policy"], f"line {root.line}")
    document: dict[str, Any] = {"levels": [], "digest": []}
    document.update({name: value for name, value in root.attributes.items() if name in ("attribute", "key")})
    lines: list[int] = []
    for element in root.children:
        if element.tag == "summary":
            document["digest"] += [_digester(child) for child in element.children]
        elif element.tag == "level":
            document["levels"].append([_filter(child) for child in element.children])
            lines.append(element.line)
        else:
            raise unknown("element", element.tag, ["summary", "level"], f"line {element.line}")
    if not lines:
        del document["levels"]
    return parse_policy(document, schema, where=f"policy of line {root.line}")


def _digester(element: _Element) -> Any:
    name = element.needed("name")
    return {name: element.attributes["attribute"]} if "attribute" in element.attributes else name


def _filter(element: _Element) -> dict[str, Any]:
    if element.tag != "filter":
        raise unknown("element", element.tag, ["filter"], f"line {element.line}")
    name = element.needed("name").lower().replace("-", "_")
    if name not in _DIRECTED:
        raise unknown("reduction filter", name, _DIRECTED, f"line {element.line}")
    parameters: dict[str, Any] = {key: value for key, value in element.attributes.items() if key != "name"}
    for child in element.children:
        if child.tag != "para":
            raise unknown("element", child.tag, ["para"], f"line {child.line}")
        parameters[child.needed("name")] = _value(child.needed("name"), child.needed("value"))
    return {"drop": {name: parameters}} if _DIRECTED[name] else {name: parameters}


def _value(name: str, text: str) -> Any:
    """A number where the text is one, a list for a set of values, else the text."""
    if name in ("values", "range", "order"):
        return [_value("", part.strip()) for part in text.split(",")]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _tree(text: str) -> _Element:
    parser = expat.ParserCreate()
    top: list[_Element] = []
    stack: list[_Element] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = _Element(tag, attributes, parser.CurrentLineNumber)
        (stack[-1].children if stack else top).append(element)
        stack.append(element)

    def end(_: str) -> None:
        stack.pop()

    def refuse(*_: Any) -> None:
        raise PolicyError(
            "a document type declaration is not allowed",
            where=f"line {parser.CurrentLineNumber}",
            hint="remove <!DOCTYPE ...>",
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        reason = expat.errors.messages[error.code]
        raise PolicyError(
            f"not well-formed XML: {reason}",
            where=f"line {error.lineno}, column {error.offset + 1}",
            hint='close every element, as in <digester name="MAX"/>',
        ) from error
    return top[0]
