"""The one way a kernel of this package is compiled: by numba, without Python objects, cached on disk.

Numba belongs to the extra `edge`. Without it a grid can be described and kept, and the few kernels that reduction needs
(`plain_kernel`) run as Python; the others say what to install when they are called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from headgate.parts import MissingPartError, installed

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile a function of arrays and numbers; it keeps its type for the callers."""
    if installed("numba"):
        return plain_kernel(function)

    @functools.wraps(function)
    def refuse(*_arguments: Any) -> Any:
        raise MissingPartError("numba")

    return cast("F", refuse)


def plain_kernel(function: F) -> F:
    """Compile a function that also runs, slowly, where there is no compiler."""
    if not installed("numba"):
        return function
    import numba

    return cast("F", numba.njit(cache=True, nogil=True)(function))
