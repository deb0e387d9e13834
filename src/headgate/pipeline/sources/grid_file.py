"""A recorded field, NetCDF or Zarr, as numbered rows: a row for each cell of each time step, step by step.

Columns are the file's own: its dimensions (their coordinate, or a number from 0 where they have none), the further
coordinates and variables that lie along them, and `step`, the number of the time step. A missing value is null.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.model import Column, Schema
from headgate.parts import part
from headgate.pipeline.sources.classic_netcdf import MAGIC, open_classic
from headgate.pipeline.sources.options import SourceError

STEP = "step"
_HDF5 = b"\x89HDF"
_WIDER = {"uint8": pa.int16(), "uint16": pa.int32(), "uint32": pa.int64()}


def open_dataset(path: Path, form: str) -> Any:
    """The file as an xarray Dataset with times, scales and missing values decoded; values are read when asked for."""
    xr = part("xarray")
    if not path.exists():
        raise SourceError(f"there is no {path}", where=str(path), hint="give the path of the file as `path`")
    try:
        if form == "zarr":
            raw = xr.open_dataset(path, engine="zarr", chunks=None, consolidated=False, decode_cf=False)
        else:
            raw = _open_netcdf(path, xr)
        return xr.decode_cf(raw, decode_timedelta=False)
    except HeadgateError:
        raise
    except Exception as error:
        raise SourceError(f"cannot read this as {form}: {error}", where=str(path)) from error


def _open_netcdf(path: Path, xr: Any) -> Any:
    with path.open("rb") as file:
        start = file.read(4)
    if start in MAGIC:
        return open_classic(path)
    if start != _HDF5:
        raise SourceError("this is no NetCDF file", where=str(path), hint="one begins with CDF or \\x89HDF")
    part("h5py")  # a NetCDF-4 file is HDF5 inside
    return xr.open_dataset(path, engine="h5netcdf", decode_cf=False)


@dataclass
class GridFile:
    """One recorded field; `time` names the dimension of its steps, found by itself where there is one of times."""

    path: Path
    form: str
    time: str | None = None
    _loaded: tuple[int, dict[str, np.ndarray]] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def dataset(self) -> Any:
        """The open file."""
        return open_dataset(self.path, self.form)

    @cached_property
    def along(self) -> str:
        """The dimension of the time steps."""
        dims = [str(name) for name in self.dataset.sizes]
        if self.time is not None:
            if self.time not in dims:
                raise SourceError(f"the file has no dimension {self.time!r}", hint="dimensions are " + ", ".join(dims))
            return self.time
        found = [d for d in dims if d in self.dataset.coords and self.dataset[d].dtype.kind == "M"] or [
            d for d in dims if d.lower() in ("time", "t")
        ]
        if len(found) != 1:
            raise SourceError(
                "it is not clear which dimension holds the time steps",
                where=str(self.path),
                hint="name it as `time`; dimensions are " + ", ".join(dims),
            )
        return found[0]

    @cached_property
    def cell_dims(self) -> tuple[str, ...]:
        """The dimensions of a step's cells: those of the variable that has most of them."""
        shapes = [
            tuple(str(d) for d in variable.dims) for variable in self.dataset.data_vars.values()
            if self.along in variable.dims
        ]  # fmt: skip
        if not shapes:
            raise SourceError(f"no variable of the file lies along {self.along!r}", where=str(self.path))
        widest = max(shapes, key=len)
        return tuple(name for name in widest if name != self.along)

    @property
    def cells(self) -> int:
        """Rows of one time step."""
        return int(np.prod([self.dataset.sizes[name] for name in self.cell_dims], dtype=np.int64))

    @property
    def steps(self) -> int:
        """How many time steps there are."""
        return int(self.dataset.sizes[self.along])

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns: dimensions, what lies along them, and the step."""
        dims = {self.along, *self.cell_dims}
        lying = [
            str(name)
            for name, variable in {**self.dataset.coords, **self.dataset.data_vars}.items()
            if str(name) not in dims and set(map(str, variable.dims)) <= dims
        ]
        found = (self.along, *self.cell_dims, *lying)
        return found if STEP in found else (*found, STEP)

    @cached_property
    def schema(self) -> Schema:
        """The columns with their types."""
        return Schema(tuple(Column(name, self._type(name)) for name in self.columns))

    def _type(self, name: str) -> pa.DataType:
        if name not in self.dataset.variables:
            return pa.int64()  # the step, or a dimension without a coordinate
        dtype = self.dataset[name].dtype
        if dtype.kind == "M":
            return pa.timestamp("us", tz="UTC")
        if dtype.kind in "OSUT":
            return pa.string()
        if dtype.name in _WIDER:
            return _WIDER[dtype.name]
        if dtype.kind in "ifb" and dtype.itemsize <= 8:
            return pa.from_numpy_dtype(dtype.newbyteorder("="))
        raise SourceError(f"variable {name!r} has values of type {dtype}, which no column can hold")

    def rows(self, start: int, stop: int) -> pa.RecordBatch:
        """Rows [start, stop): cell by cell in the order of the file, step by step."""
        if not 0 <= start <= stop <= self.steps * self.cells:
            raise SourceError(
                f"rows {start} to {stop} are asked for, but there are {self.steps * self.cells}",
                where=str(self.path),
                hint="was the file replaced by a shorter one? a replay needs the file that it began with",
            )
        parts: dict[str, list[np.ndarray]] = {name: [] for name in self.columns}
        for step in range(start // self.cells, -(-stop // self.cells)):
            first, last = max(start - step * self.cells, 0), min(stop - step * self.cells, self.cells)
            for name, values in self._step(step).items():
                parts[name].append(values[first:last])
        arrays = [self._array(name, pieces) for name, pieces in parts.items()]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema.arrow)

    def _array(self, name: str, pieces: list[np.ndarray]) -> pa.Array:
        kind = self.schema.column(name).type
        if not pieces:
            return pa.array([], kind)
        values = np.concatenate(pieces)
        if values.dtype.kind == "M":
            times = values.astype("datetime64[us]")
            return pa.array(times.astype(np.int64), pa.int64(), mask=np.isnat(times)).cast(kind)
        if pa.types.is_string(kind):
            texts = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in values.tolist()]
            return pa.array([None if v is None else str(v) for v in texts], kind)
        native = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
        return pa.array(native, from_pandas=True).cast(kind)

    def _step(self, step: int) -> dict[str, np.ndarray]:
        """The columns of one step; the last one is kept, since a large step is read in several batches."""
        if self._loaded is None or self._loaded[0] != step:
            shape = [self.dataset.sizes[name] for name in self.cell_dims]
            slab = self.dataset.isel({self.along: step})
            found: dict[str, np.ndarray] = {}
            for name in self.columns:
                if name in slab.variables:
                    values = slab[name].transpose(..., *[d for d in self.cell_dims if d in slab[name].dims])
                    dims, data = [str(d) for d in values.dims], np.asarray(values.values)
                elif name in self.cell_dims:
                    dims, data = [name], np.arange(self.dataset.sizes[name])
                else:
                    dims, data = [], np.asarray(step)
                lined = data.reshape([self.dataset.sizes[d] if d in dims else 1 for d in self.cell_dims])
                found[name] = np.broadcast_to(lined, shape).ravel()
            self._loaded = (step, found)
        return self._loaded[1]

    def __getstate__(self) -> dict[str, Any]:
        """What travels to a worker: it opens the file itself."""
        return {"path": self.path, "form": self.form, "time": self.time, "_loaded": None}
