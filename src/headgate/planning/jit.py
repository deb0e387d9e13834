"""The one place where kernels meet the compiler: compiled on first use, kept in the cache directory afterwards.

Kernels allocate nothing: every array is an argument, owned by the caller. So they are compiled without the compiler's
memory runtime, which would count references of all of a net's arrays at every call of one kernel by another. Valuing
the 620 nodes of a default instance takes 10 us so and 109 us with it. An allocation in a kernel is refused when it is
compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def entry(function: F) -> F:
    """Compile a kernel that Python calls; its type stays what was written."""
    return cast("F", numba.njit(cache=True, nogil=True, _nrt=False)(function))


def jit(function: F) -> F:
    """Compile a kernel that only other kernels call: without the wrapper for Python, which costs most of the time."""
    return cast("F", numba.njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)(function))
