"""Profile types: languages of interest behind one protocol, as in XPORT section 2.2.1, found by entry point."""

from headgate.filters.profiles.base import (
    AnyOf,
    DefaultProfileType,
    Profile,
    ProfileIndex,
    ProfileType,
    relational,
)
from headgate.filters.profiles.registry import ProfileError, compile_profile, profile_names, profile_type
from headgate.filters.profiles.translated import Translated, text_columns

__all__ = [
    "AnyOf",
    "DefaultProfileType",
    "Profile",
    "ProfileError",
    "ProfileIndex",
    "ProfileType",
    "Translated",
    "compile_profile",
    "profile_names",
    "profile_type",
    "relational",
    "text_columns",
]
