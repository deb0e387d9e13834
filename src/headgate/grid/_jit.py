"""The one way a kernel of this package is compiled: by numba, without Python objects, cached on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile a function of arrays and numbers; it keeps its type for the callers."""
    return cast("F", numba.njit(cache=True, nogil=True)(function))
