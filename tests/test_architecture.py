"""The shape of the code, read from its syntax trees: imports point one way, engines touch nothing outside.

Two distributions: the product in `src/headgate` and the laboratory in `studies/src/headgate_studies`. The product never
imports the laboratory.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.sources import parsed

ROOT = Path(__file__).parents[1]
SOURCES = {"headgate": ROOT / "src" / "headgate", "headgate_studies": ROOT / "studies" / "src" / "headgate_studies"}

# Lowest first. A package imports from its own row, without cycles, and from the rows above it in this list.
LEVELS: tuple[tuple[str, ...], ...] = (
    ("__init__", "closing", "errors", "faults", "diagnostics", "parts", "private"),
    ("model",),
    ("filters",),
    ("matching", "grid", "deriving"),
    ("planning", "reduction"),
    ("tuning",),
    ("wire",),
    ("protocol",),
    ("virtual",),
    ("catalog", "fabric"),
    ("relay", "pipeline", "feeds", "client"),
    ("spark", "gateway", "replicas"),
    ("service",),
    ("replay",),
    ("api",),
    ("cli",),
)
# The laboratory stands on all of the product.
LABORATORY: tuple[tuple[str, ...], ...] = (
    ("__init__", "session", "direct", "spark_cluster"),
    ("workloads",),
    ("models",),
    ("lab",),
    ("studies", "bench"),
    ("cli",),
    ("testing",),
)
LEVEL = {
    **{f"headgate.{package}": level for level, row in enumerate(LEVELS) for package in row},
    **{f"headgate_studies.{package}": level for level, row in enumerate(LABORATORY, len(LEVELS)) for package in row},
}
# Machines of the protocol: events in, commands out. Their runners and faces are the only modules with I/O beside them.
CLOSED = (
    "protocol/", "relay/", "client/reader.py", "client/stays.py", "client/acknowledging.py",
    "gateway/memory.py", "gateway/follower.py", "gateway/answers.py",
    "service/books.py", "service/keeper.py", "service/named_versions.py", "service/purging.py",
    "service/tables_room.py", "service/reports.py", "service/head_repair.py",
)  # fmt: skip
RUNNERS = (
    *("relay/node.py", "relay/unit_node.py", "relay/upward_node.py", "relay/courier.py", "relay/hosted.py"),
    "relay/link_watch.py",
)
ENGINES = ("model", "filters", "matching", "grid", "deriving", "planning", "reduction", "tuning")
MAX_PARAMETERS = 8
CROWDED = (
    # All but one are options by name, with defaults.
    "client/client.py:subscribe",
    # Compiled kernels: Numba takes arrays, and one array is one parameter.
    *(f"grid/_treekernels.py:{name}" for name in ("_serve_one", "insert", "serve")),
    *(f"grid/decompose.py:{name}" for name in ("_bounded", "_bounded_batch", "_exact", "_exact_batch", "_overlaps")),
    "grid/gridding.py:_spread",
    *(f"matching/compiled/{name}" for name in ("moving.py:_take_out", "search.py:_test_blocks")),
    *(f"planning/kernel/{name}" for name in ("anneal.py:anneal", "repair.py:tend", "sweeping.py:sweep")),
)
# The faces are imported by faces only.
IMPORTERS = {
    "headgate.cli": {f"headgate_studies.{package}" for package in ("cli", "testing")},
    "headgate.api": {"headgate.cli", "headgate_studies.testing"},
    "headgate.service": {
        "headgate.api",
        "headgate.cli",
        "headgate.replay",
        *(f"headgate_studies.{package}" for package in ("bench", "studies", "testing")),
    },
    "headgate_studies.testing": set(),
}
# Spark, the network, the wall clock, threads, databases, the terminal: engines get what they need as arguments.
FOREIGN = {
    "aiohttp", "alembic", "asyncio", "fastapi", "http", "multiprocessing", "nats", "py4j", "pydantic",
    "pyspark", "random", "requests", "rich", "secrets", "socket", "sqlalchemy", "sqlite3", "ssl", "subprocess",
    "time", "typer", "urllib", "uvicorn", "websockets", "yaml",
}  # fmt: skip
CLOCKS = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")}
RANDOM = {"choice", "normal", "permutation", "rand", "randint", "randn", "random", "seed", "shuffle", "uniform"}
MAX_LINES = 600


@dataclass(frozen=True)
class Module:
    path: Path
    distribution: str
    name: str
    tree: ast.Module

    @property
    def package(self) -> str:
        return f"{self.distribution}.{Path(self.name).parts[0].removesuffix('.py')}"

    @property
    def dotted(self) -> str:
        return f"{self.distribution}.{self.name.removesuffix('.py').replace('/', '.')}"


@cache
def modules() -> tuple[Module, ...]:
    """Every module of both distributions; read when the first test asks, not by every worker that collects tests."""
    return tuple(
        Module(path, distribution, path.relative_to(source).as_posix(), parsed(path))
        for distribution, source in SOURCES.items()
        for path in sorted(source.rglob("*.py"))
    )


def imported(tree: ast.Module) -> Iterator[str]:
    """Every module that a syntax tree imports, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name their package in full"
            if node.module in SOURCES:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif node.module:
                yield node.module


def packages_of(tree: ast.Module) -> set[str]:
    """The packages of both distributions that a syntax tree imports."""
    found = (name.split(".") for name in imported(tree) if name.split(".")[0] in SOURCES)
    names = ((parts[0], parts[1] if len(parts) > 1 else "__init__") for parts in found)
    return {f"{top}.{'__init__' if name.startswith('__') else name}" for top, name in names}


def wrong_arrow(importer: str, package: str) -> str | None:
    """Why a package may not import another, None when it may."""
    if LEVEL[package] > LEVEL[importer]:
        return f"{importer} imports {package}, which stands above it"
    if importer not in IMPORTERS.get(package, {importer}) and importer != package:
        return f"{importer} imports {package}, which only {sorted(IMPORTERS[package])} may"
    return None


def cycle(graph: Mapping[str, set[str]]) -> list[str] | None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return None


def foreign(tree: ast.Module) -> Iterator[str]:
    """What an engine may not have in a syntax tree."""
    for name in imported(tree):
        if name.split(".")[0] in FOREIGN:
            yield f"import {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield f"global {', '.join(node.names)}"
        if isinstance(node, ast.Attribute):
            owner = node.value
            last = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
            if (last, node.attr) in CLOCKS:
                yield f"{last}.{node.attr}"
            if last == "random" and isinstance(owner, ast.Attribute) and node.attr in RANDOM:
                yield f"{ast.unparse(node)} (take a seeded generator as an argument)"


def test_every_package_has_its_level() -> None:
    assert {module.package for module in modules()} <= set(LEVEL)


def test_imports_point_downwards() -> None:
    wrong = {
        module.dotted: reasons
        for module in modules()
        if (reasons := [why for package in packages_of(module.tree) if (why := wrong_arrow(module.package, package))])
    }
    assert wrong == {}


def test_packages_have_no_cycle() -> None:
    graph: dict[str, set[str]] = {}
    for module in modules():
        graph.setdefault(module.package, set()).update(packages_of(module.tree) - {module.package})
    assert cycle(graph) is None


def imports_at_the_top(tree: ast.Module) -> ast.Module:
    """The imports of a module when it is loaded, and those that only a type checker sees."""
    checked = [
        node
        for block in tree.body
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in block.body
    ]
    return ast.Module([node for node in [*tree.body, *checked] if isinstance(node, ast.Import | ast.ImportFrom)], [])


def test_modules_have_no_cycle() -> None:
    """Between modules too, also behind `TYPE_CHECKING`: a cycle that only a type checker sees is one for a reader."""
    names = {module.dotted: module for module in modules()}
    graph: dict[str, set[str]] = {}
    for name, module in names.items():
        graph[name] = {found for found in imported(imports_at_the_top(module.tree)) if found in names}
    assert cycle(graph) is None


@pytest.mark.parametrize("package", ENGINES)
def test_engines_touch_nothing_outside(package: str) -> None:
    found = {module.name: list(foreign(module.tree)) for module in modules() if module.package == f"headgate.{package}"}
    assert found
    assert {name: reasons for name, reasons in found.items() if reasons} == {}


def test_machines_of_the_protocol_are_closed() -> None:
    product = [each for each in modules() if each.distribution == "headgate"]
    closed = [each for each in product if each.name.startswith(CLOSED) and each.name not in RUNNERS]
    machines = {"relay/machine.py", "client/reader.py", "protocol/commits.py", "service/keeper.py"}
    assert machines <= {module.name for module in closed}
    found = {module.name: list(foreign(module.tree)) for module in closed}
    assert {name: reasons for name, reasons in found.items() if reasons} == {}
    for module in closed:
        assert "headgate.fabric" not in packages_of(module.tree), module.name


def test_every_package_says_what_it_is_for() -> None:
    packages = [module for module in modules() if module.path.name == "__init__.py"]
    silent = [module.name for module in packages if not ast.get_docstring(module.tree)]
    assert silent == []
    missing = [module.path for module in modules() if not (module.path.parent / "__init__.py").exists()]
    assert missing == []


def test_modules_are_short() -> None:
    lengths = {module.dotted: len(module.path.read_text().splitlines()) for module in modules()}
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}


def test_parameter_lists_are_short() -> None:
    """Where more is needed, what belongs together is an object. The list of exceptions may only shrink."""
    found = {
        f"{module.name}:{name}"
        for module in modules()
        if module.distribution == "headgate"
        for name in crowded(module.tree)
    }
    assert found == set(CROWDED)


def crowded(tree: ast.Module) -> Iterator[str]:
    """Functions with more than `MAX_PARAMETERS` parameters; of a method, `self` is none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            if len(names) - (names[:1] in (["self"], ["cls"])) > MAX_PARAMETERS:
                yield node.name


def test_the_map_names_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    mapped = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    packages = {path.parent.name for source in SOURCES.values() for path in source.glob("*/__init__.py")}
    assert packages <= mapped


@pytest.mark.parametrize(
    ("importer", "package", "right"),
    [
        ("headgate.planning", "headgate.model", True),
        ("headgate.model", "headgate.planning", False),
        ("headgate.grid", "headgate.matching", True),
        ("headgate.wire", "headgate.catalog", False),
        ("headgate.relay", "headgate.service", False),
        ("headgate.service", "headgate_studies.direct", False),
        ("headgate.cli", "headgate_studies.bench", False),
        ("headgate.cli", "headgate.service", True),
        ("headgate_studies.bench", "headgate.service", True),
        ("headgate_studies.studies", "headgate_studies.testing", False),
        ("headgate_studies.testing", "headgate.cli", True),
    ],
)
def test_the_arrows_are_what_they_should_be(importer: str, package: str, right: bool) -> None:
    assert (wrong_arrow(importer, package) is None) == right


def test_planted_faults_are_found() -> None:
    assert cycle({"relay": {"pipeline"}, "pipeline": {"relay"}}) is not None
    assert packages_of(ast.parse("def f():\n    from headgate.cli.app import main")) == {"headgate.cli"}
    assert packages_of(ast.parse("from headgate_studies import studies")) == {"headgate_studies.studies"}
    assert packages_of(ast.parse("import headgate_studies")) == {"headgate_studies.__init__"}
    for text in (
        "import time",
        "from asyncio import run",
        "import pyspark.sql as sql",
        "from datetime import datetime\ndatetime.now()",
        "import datetime as dt\ndt.datetime.now(dt.UTC)",
        "import numpy as np\nnp.random.rand(3)",
        "def f():\n    global state",
    ):
        assert list(foreign(ast.parse(text))), text
    assert not list(foreign(ast.parse("import numpy as np\nnp.random.default_rng(3).random(2)")))
