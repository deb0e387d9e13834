"""Spark sessions for studies and benchmarks: Headgate's own, whose workers also find this package."""

from __future__ import annotations

import os
import site
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import headgate_studies
from headgate.pipeline import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NONE: Mapping[str, str] = MappingProxyType({})


def make_session(
    name: str,
    master: str = "local[*]",
    options: Mapping[str, str] = _NONE,
    state_dir: Path | None = None,
) -> SparkSession:
    """A session as `headgate.pipeline.session.make_session` makes it, with this package on the workers' path."""
    place = str(Path(headgate_studies.__file__).absolute().parent.parent)
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if place not in given and place not in site.getsitepackages():
        os.environ["PYTHONPATH"] = os.pathsep.join([place, *given])
    return session.make_session(name, master, options, state_dir)
