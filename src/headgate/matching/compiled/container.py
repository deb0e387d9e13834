"""Files of named arrays: a checked header, then the arrays at page boundaries, to be mapped and not read.

Layout: magic, length of the header, header (JSON: meta, and per array its type, shape and place), arrays. The header
carries a digest of everything after it and is followed by a digest of itself. A file is written beside its name and
renamed, so a reader sees all of it or none.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headgate.matching.index import MatchingError

_MAGIC = b"HGARRAY1"
_PAGE = 4096
_DIGEST = 16


def write_arrays(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays and a JSON-ready `meta` so that `map_arrays` finds them."""
    places: dict[str, Any] = {}
    position = 0
    digest = hashlib.blake2b(digest_size=_DIGEST)
    for name, array in arrays.items():
        places[name] = {"type": array.dtype.str, "shape": array.shape, "at": position}
        position += _padded(array.nbytes)
        digest.update(_bytes(array).data)
    header = json.dumps({"meta": meta, "arrays": places, "digest": digest.hexdigest(), "size": position}).encode()
    seal = hashlib.blake2b(header, digest_size=_DIGEST).digest()
    start = _padded(len(_MAGIC) + 8 + len(header) + _DIGEST)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    with partial.open("wb") as file:
        file.write(_MAGIC + len(header).to_bytes(8, "little") + header + seal)
        for name, array in arrays.items():
            file.seek(start + places[name]["at"])
            file.write(_bytes(array).data)
        file.truncate(start + position)
    partial.replace(path)


def map_arrays(path: Path, *, verify: bool = True) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The meta and the arrays of a file, mapped privately: changes stay in this process and never reach the file.

    A file that is cut, changed or of another format is refused; `verify` reads all of it once to make sure.
    """
    raw = _header(path)
    header = json.loads(raw)
    start = _padded(len(_MAGIC) + 8 + len(raw) + _DIGEST)
    if path.stat().st_size != start + header["size"]:
        raise _damaged(path, "its length is wrong")
    arrays: dict[str, np.ndarray] = {}
    digest = hashlib.blake2b(digest_size=_DIGEST)
    for name, place in header["arrays"].items():
        shape, kind = tuple(place["shape"]), np.dtype(place["type"])
        if 0 in shape:
            arrays[name] = np.empty(shape, kind)
            continue
        mapped = np.memmap(path, kind, "c", start + place["at"], shape)
        arrays[name] = mapped.view(np.ndarray)
        if verify:
            digest.update(_bytes(arrays[name]).data)
    if verify and digest.hexdigest() != header["digest"]:
        raise _damaged(path, "its checksum is wrong")
    return header["meta"], arrays


def _header(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            opening = file.read(len(_MAGIC) + 8)
            length = int.from_bytes(opening[len(_MAGIC) :], "little")
            if not opening.startswith(_MAGIC) or length > path.stat().st_size:
                raise _damaged(path, "it is no index file")
            raw, seal = file.read(length), file.read(_DIGEST)
    except FileNotFoundError:
        raise MatchingError("no such index file", where=str(path), hint="publish that version first") from None
    if hashlib.blake2b(raw, digest_size=_DIGEST).digest() != seal:
        raise _damaged(path, "its header is wrong")
    return raw


def _damaged(path: Path, what: str) -> MatchingError:
    return MatchingError(f"this file cannot be used: {what}", where=str(path), hint="publish the version again")


def _padded(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
