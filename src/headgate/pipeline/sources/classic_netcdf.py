"""NetCDF files of the classic format (versions 1, 2 and 5), mapped into memory and given as an xarray Dataset.

xarray reads this format through other libraries; it is simple enough to be read here, so that a recorded field needs
none. A header of dimensions, attributes and variables in big-endian numbers, then the values: those of fixed variables
one after the other, those of record variables (along the one dimension that can grow) interleaved by record. Nothing is
read from disk before it is asked for.
"""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headgate.pipeline.sources.options import SourceError

MAGIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
_TYPES = ("i1", "S1", ">i2", ">i4", ">f4", ">f8", "u1", ">u2", ">u4", ">i8", ">u8")
_CHAR = 2
_DIMENSIONS, _VARIABLES, _ATTRIBUTES = 10, 11, 12
_STREAMING = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class _Variable:
    name: str
    dimensions: tuple[int, ...]
    attributes: dict[str, Any]
    dtype: np.dtype[Any]
    begin: int


class _Header:
    """Reads the header from its start; every step checks that the file goes on."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data, self._path, self._at = data, path, 4
        self._version = data[3]
        self.records = self._count()
        self.dimensions = [(self._name(), self._count()) for _ in range(self._list(_DIMENSIONS))]
        self.attributes = self._attributes()
        self.variables = [self._variable() for _ in range(self._list(_VARIABLES))]

    def _take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise SourceError("the file ends in its header", where=str(self._path), hint="is it complete?")
        self._at += size
        return found

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def _count(self) -> int:
        return self._number(8 if self._version == 5 else 4)

    def _padded(self, size: int) -> bytes:
        return self._take(-(-size // 4) * 4)[:size]

    def _name(self) -> str:
        return self._padded(self._count()).decode("utf-8", "replace")

    def _list(self, tag: int) -> int:
        found, length = self._number(4), self._count()
        if found != tag and (found or length):
            raise SourceError("this is no NetCDF file of the classic format", where=str(self._path))
        return length

    def _type(self) -> int:
        kind = self._number(4)
        if not 1 <= kind <= len(_TYPES):
            raise SourceError(f"the file has a type of number {kind}", where=str(self._path), hint="types are 1 to 11")
        return kind

    def _attributes(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(self._list(_ATTRIBUTES)):
            name, kind, length = self._name(), self._type(), self._count()
            dtype = np.dtype(_TYPES[kind - 1])
            raw = self._padded(length * dtype.itemsize)
            if kind == _CHAR:
                found[name] = raw.rstrip(b"\0").decode("utf-8", "replace")
            else:
                values = np.frombuffer(raw, dtype).astype(dtype.newbyteorder("="))
                found[name] = values[0] if length == 1 else values
        return found

    def _variable(self) -> _Variable:
        name = self._name()
        dimensions = tuple(self._count() for _ in range(self._count()))
        if any(number >= len(self.dimensions) for number in dimensions):
            raise SourceError(f"variable {name!r} has a dimension that is not there", where=str(self._path))
        attributes, kind = self._attributes(), self._type()
        self._count()  # the size, which larger variables cannot state; it follows from the dimensions
        return _Variable(name, dimensions, attributes, np.dtype(_TYPES[kind - 1]), self._begin())

    def _begin(self) -> int:
        return self._number(4 if self._version == 1 else 8)


def open_classic(path: Path) -> Any:
    """The file as an xarray Dataset of raw values, not decoded."""
    import xarray as xr

    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    header = _Header(data, path)
    growing = {number for number, (_, length) in enumerate(header.dimensions) if length == 0}
    along = [v for v in header.variables if v.dimensions and v.dimensions[0] in growing]
    sizes = {v.name: _bytes_of(v, header, skip=1) for v in along}
    # One record variable alone is not padded between records.
    record = sum(sizes.values()) if len(along) == 1 else sum(-(-size // 4) * 4 for size in sizes.values())
    records = header.records
    if records >= _STREAMING:
        start = min((v.begin for v in along), default=len(data))
        records = (len(data) - start) // record if record else 0
    found = {}
    for variable in header.variables:
        names = tuple(header.dimensions[number][0] for number in variable.dimensions)
        grows = variable in along
        shape = tuple(header.dimensions[number][1] for number in variable.dimensions)
        shape = (records, *shape[1:]) if grows else shape
        inner = [variable.dtype.itemsize * math.prod(shape[d + 1 :]) for d in range(len(shape))]
        strides = (record, *inner[1:]) if grows else tuple(inner)
        end = variable.begin + (strides[0] * (shape[0] - 1) if shape and shape[0] else 0)
        end += _bytes_of(variable, header, skip=1) if shape else variable.dtype.itemsize
        if 0 not in shape and end > len(data):
            raise SourceError(f"the file ends in variable {variable.name!r}", where=str(path), hint="is it complete?")
        values = (
            np.empty(shape, variable.dtype)
            if 0 in shape
            else np.ndarray(shape, variable.dtype, data, variable.begin, strides)
        )
        found[variable.name] = xr.Variable(names, values, variable.attributes)
    return xr.Dataset(found, attrs=header.attributes)


def _bytes_of(variable: _Variable, header: _Header, *, skip: int) -> int:
    """Bytes of a variable without its first `skip` dimensions."""
    return variable.dtype.itemsize * math.prod(header.dimensions[n][1] for n in variable.dimensions[skip:])
