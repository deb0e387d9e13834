"""`headgate gridding`: a file of irregular stations to a complete grid, through the Spark stage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from headgate.errors import HeadgateError
from headgate.model import Column, Schema


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("gridding")(gridding)


def gridding(
    file: Annotated[Path, typer.Argument(help="Rows of stations as CSV or Parquet.")],
    grid: Annotated[Path, typer.Option(help="A YAML file with the grid: x, y and time, as in a stream's `grid:`.")],
    value: Annotated[list[str], typer.Option(help="A column to interpolate; repeatable.")],
    radius: Annotated[float, typer.Option(help="How far a station reaches, in the axes' unit.")],
    out: Annotated[Path, typer.Option(help="What to write: NAME.parquet or NAME.zarr.")],
    tiles: Annotated[int, typer.Option(min=1, help="Regions along each axis, each computed on its own.")] = 2,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[*]",
) -> None:
    """Interpolate stations to every cell of a grid, per time step; cells that no station reaches are declared."""
    import pyarrow.csv
    import pyarrow.parquet

    from headgate.grid import Field, parse_layout
    from headgate.pipeline.gridding import gridding as stage
    from headgate.pipeline.session import make_session

    if out.suffix not in (".parquet", ".zarr"):
        raise HeadgateError(f"{out} is neither .parquet nor .zarr", where="--out")
    try:
        table = pyarrow.parquet.read_table(file) if file.suffix == ".parquet" else pyarrow.csv.read_csv(file)
    except (OSError, ValueError) as error:
        raise HeadgateError(f"cannot read rows: {error}", where=str(file)) from error
    try:
        document = yaml.safe_load(grid.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise HeadgateError(f"cannot read the grid: {error}", where=str(grid)) from error
    layout = parse_layout(document, _schema(table), where=str(grid))
    for name in value:
        if name not in table.column_names:
            known = ", ".join(table.column_names)
            raise HeadgateError(f"no column {name!r}", where=str(file), hint=f"columns are {known}")
    spark = make_session("headgate-gridding", master)
    try:
        found = stage(spark.createDataFrame(table), layout, tuple(value), radius, tiles=tiles).toArrow()
    finally:
        spark.stop()
    if out.suffix == ".parquet":
        pyarrow.parquet.write_table(found, out)
    else:
        on_grid = {name: document[name] for name in ("x", "y")} | {"time": {"tick": "step"}}
        steps = max(1, len(found.column("step").unique()))
        field = Field(parse_layout(on_grid, _schema(found)), tuple(value), steps=steps)
        for batch in found.to_batches():
            field.add(batch)
        field.to_zarr(out)
    missing = sum(1 for count in found.column("stations").to_pylist() if count == 0)
    typer.echo(json.dumps({"out": str(out), "cells": found.num_rows, "missing": missing}))


def _schema(table: Any) -> Schema:
    return Schema(tuple(Column(field.name, field.type) for field in table.schema))
