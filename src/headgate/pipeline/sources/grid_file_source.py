"""The Spark sources `netcdf` and `zarr`: a recorded field replayed as a live stream, with exact offsets."""

from __future__ import annotations

from typing import ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from headgate.pipeline.sources.grid_file_options import GridFileSettings
from headgate.pipeline.sources.paced import PacedReader


class _GridFileSource(DataSource):
    form: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return cls.form

    def schema(self) -> str:
        """The file's columns."""
        return GridFileSettings.of(self.form, dict(self.options)).schema.ddl

    def streamReader(self, schema: StructType) -> PacedReader:
        """A reader of the columns asked for."""
        return PacedReader(GridFileSettings.of(self.form, dict(self.options)), schema)


class NetcdfSource(_GridFileSource):
    """Registered as `netcdf`."""

    form = "netcdf"


class ZarrSource(_GridFileSource):
    """Registered as `zarr`."""

    form = "zarr"
