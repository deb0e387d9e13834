"""Profile types by name: the built-in ones, and those that installed packages offer.

A package offers a type with an entry point of the group `headgate.profiles` that names an object with the methods of
`ProfileType`. Types are loaded when they are first asked for, so a broken package harms only those who use it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import cast

import pyarrow as pa

from headgate.errors import HeadgateError, nearest
from headgate.filters.profiles.base import Profile, ProfileType
from headgate.model import Schema

GROUP = "headgate.profiles"

# Where built-in types are, as `module:name`. A type of a package above this one is named here, never imported here.
BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "relational": "headgate.filters.profiles.relational_type:PROFILE",
        "topics": "headgate.filters.profiles.topics:PROFILE",
        "keywords": "headgate.filters.profiles.keywords:PROFILE",
        "grid": "headgate.grid.profile:PROFILE",
    }
)


class ProfileError(HeadgateError):
    """A profile type that is unknown or cannot be loaded."""


def _offered() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in BUILT_IN}


def profile_names() -> tuple[str, ...]:
    """The names of all types, built-in ones first.

    >>> profile_names()[:3]
    ('relational', 'topics', 'keywords')
    """
    return (*BUILT_IN, *sorted(_offered()))


def profile_type(name: str) -> ProfileType:
    """The type of that name.

    >>> profile_type("topics").name
    'topics'
    """
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        return cast("ProfileType", getattr(importlib.import_module(module), attribute))
    point = _offered().get(name)
    if point is None:
        close = nearest(name, profile_names())
        hint = f"did you mean {close!r}?" if close else "types are " + ", ".join(profile_names())
        raise ProfileError(f"unknown profile type {name!r}", hint=hint)
    try:
        found = point.load()
    except Exception as error:  # a third party's code may raise anything
        raise ProfileError(
            f"profile type {name!r} cannot be loaded: {error}", hint=f"its entry point is {point.value}"
        ) from error
    if not isinstance(found, ProfileType):
        raise ProfileError(
            f"{point.value} is no profile type", hint="it needs name, compile, match, covers, merge and index"
        )
    return found


def compile_profile(
    profile: str, where: str, schema: Schema, context_types: Mapping[str, pa.DataType] | None = None
) -> Profile:
    """The predicate over rows that a subscription's `where` means in the language of its `profile`.

    >>> compile_profile("topics", "topic: news/+/goals", Schema.of({"topic": "string"})).columns
    frozenset({'topic'})
    """
    return profile_type(profile).compile(where, schema, context_types or {})
