"""The one place where kernels meet the compiler: compiled on first use, kept in the cache directory afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def entry(function: F) -> F:
    """Compile a kernel that Python calls; its type stays what was written."""
    return cast("F", numba.njit(cache=True, nogil=True)(function))


def jit(function: F) -> F:
    """Compile a kernel that only other kernels call: without the wrapper for Python, which costs most of the time."""
    return cast("F", numba.njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function))
