"""The one place where kernels meet the compiler: compiled on first use, kept in the cache directory afterwards.

Kernels allocate nothing: every array is an argument, owned by the caller. So they are compiled without the compiler's
memory runtime, which would count references of all of a net's arrays at every call of one kernel by another. Valuing
the 620 nodes of a default instance takes 10 us so and 109 us with it. An allocation in a kernel is refused when it is
compiled.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


@functools.cache
def source_digest() -> str:
    """A digest of the sources of all kernels and of what they work on."""
    found, here = hashlib.blake2b(digest_size=16), Path(__file__).parent
    for path in (here / "jit.py", here / "net.py", *sorted((here / "kernel").glob("*.py"))):
        found.update(path.read_bytes())
    return found.hexdigest()


def entry(function: F) -> F:
    """Compile a kernel that Python calls; its type stays what was written.

    The compiler's cache watches only the file of this function, though what it calls is compiled into it: so the stamp
    that it compares is replaced by a digest of all kernels.
    """
    compiled: Any = numba.njit(cache=True, nogil=True, _nrt=False)(function)
    compiled._cache._cache_file._source_stamp = source_digest()  # noqa: SLF001 (no public way to widen the stamp)
    return cast("F", compiled)


def jit(function: F) -> F:
    """Compile a kernel that only other kernels call: without the wrapper for Python, which costs most of the time."""
    return cast("F", numba.njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)(function))


def inline(function: F) -> F:
    """Compile a kernel into each of its callers: for those so small that handing a net over would cost more."""
    return cast(
        "F",
        numba.njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False, forceinline=True)(function),
    )
