"""Reads a deployment file for a command, with what the Spark sources know about schemas and options."""

from __future__ import annotations

from pathlib import Path

from headgate.catalog import load_deployment
from headgate.model import Deployment


def read_deployment(path: Path) -> Deployment:
    """The deployment of a file; `DeploymentError` lists every problem in it."""
    from headgate.pipeline.sources import GENERATOR_SCHEMAS, check_source

    return load_deployment(path, GENERATOR_SCHEMAS, check_source)
