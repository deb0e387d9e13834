"""How kernels are compiled: without the interpreter's lock, with IEEE errors as values, cached on disk.

The cache lies beside the source or in `NUMBA_CACHE_DIR`, which worker processes share; `headgate.matching.warm_up`
fills it ahead of time.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

# An integer inside a kernel: numba knows its width; for the type checker NumPy's and Python's integers mix freely.
Int = Any

_KERNEL_FILES = ("jit.py", "coding.py", "packing.py", "tree.py", "change.py", "moving.py", "search.py", "ordering.py")

F = TypeVar("F", bound=Callable[..., Any])


@functools.cache
def source_digest() -> str:
    """A digest of the sources of all kernels: what was compiled from other sources is not used."""
    found = hashlib.blake2b(digest_size=16)
    for name in _KERNEL_FILES:
        found.update((Path(__file__).parent / name).read_bytes())
    return found.hexdigest()


def kernel(function: F) -> F:
    """A function that Python calls, compiled on first use and cached on disk.

    Numba's cache watches only the file of this function, though its callees are compiled into it; so the stamp that it
    compares is replaced by a digest of the whole package.
    """
    return cast("F", _cached(numba.njit(cache=True, nogil=True, error_model="numpy")(function)))


def bare_kernel(function: F) -> F:
    """A kernel that allocates nothing and returns numbers: without the memory runtime, it counts no references.

    Only what is bare may be called by it (decision 036). The compiler does not check that nothing bare returns arrays;
    their caller would free them too early.
    """
    return cast("F", _cached(numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False)(function)))


def _cached(compiled: Any) -> Any:
    """Numba's cache of a kernel, stamped with the digest of all sources."""
    compiled._cache._cache_file._source_stamp = source_digest()  # noqa: SLF001 (no public way to widen the stamp)
    return compiled


def inner(function: F) -> F:
    """A function that only kernels call."""
    return cast("F", numba.njit(nogil=True, error_model="numpy", forceinline=True)(function))


def bare_inner(function: F) -> F:
    """A function that only kernels call, that allocates nothing and returns numbers or nothing."""
    return cast("F", numba.njit(nogil=True, error_model="numpy", forceinline=True, _nrt=False)(function))


def shared(function: F) -> F:
    """A function that only kernels call, not woven into them: for what is long or called in several places."""
    return cast("F", numba.njit(nogil=True, error_model="numpy")(function))


def bare_shared(function: F) -> F:
    """As `shared`, for what allocates nothing and returns numbers or nothing."""
    return cast("F", numba.njit(nogil=True, error_model="numpy", _nrt=False)(function))
