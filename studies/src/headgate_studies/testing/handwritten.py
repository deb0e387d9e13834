"""What is written by hand beside the libraries that would do it: ``python -m headgate_studies.testing.handwritten``.

Classic NetCDF against SciPy and netCDF4, loops that try again against stamina and tenacity, the thread with an event
loop against anyio's portal, and stored records by msgspec against dataclasses, `json` and checks by hand. What is not
installed is left out and named. Figures are processor time, the least of several runs; both sides of a pair are
measured in turn. docs/decisions/130-hand-written-or-a-library.md says what followed.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from headgate.diagnostics import FABRIC
from headgate.errors import HeadgateError
from headgate.fabric.sync import LoopThread
from headgate.wire.histogram import Histogram
from headgate.wire.ledger import Begun, Since, Tally
from headgate.wire.record import Count
from headgate.wire.sealed import seal, unseal
from headgate_studies.bench.roles import import_cost

_RUNS: Final = 7
_CALLS: Final = 2_000
_FILES: Final = ("classic.nc", "offset64.nc", "data64.nc", "unpadded.nc")


def cpu_s(work: Callable[[], object]) -> float:
    """Processor seconds of a piece of work, of all threads."""
    began = time.process_time()
    work()
    return time.process_time() - began


def least(pairs: dict[str, Callable[[], object]], runs: int = _RUNS) -> dict[str, float]:
    """The least processor seconds of each piece of work, measured in turn."""
    found = [{name: cpu_s(work) for name, work in pairs.items()} for _ in range(runs)]
    return {name: min(each[name] for each in found) for name in pairs}


def has(name: str) -> bool:
    """Whether a library is here; says so where it is not."""
    try:
        importlib.import_module(name)
    except ImportError:
        print(f"  {name} is not installed: left out")
        return False
    return True


def show(what: str, found: dict[str, float], unit_s: float, unit: str, count: int = 1) -> None:
    """One line a side, the first as the measure of the others."""
    first = next(iter(found.values()))
    for name, seconds in found.items():
        print(f"  {what:<30} {name:<34} {seconds / unit_s / count:>10.2f} {unit}  x{seconds / first:.2f}")


# -- classic NetCDF


def fields_of_sea(directory: Path) -> Path:
    """A file of 48 hourly steps of 200 x 300 cells with two variables, as SciPy writes it."""
    from scipy.io import netcdf_file  # type: ignore[import-untyped, import-not-found, unused-ignore] # a peer

    path, values = directory / "sea.nc", np.random.default_rng(1)
    with netcdf_file(str(path), "w") as file:
        for name, length in (("time", None), ("lat", 200), ("lon", 300)):
            file.createDimension(name, length)
        file.createVariable("time", "i4", ("time",))[:] = np.arange(48)
        for name in ("height", "period"):
            file.createVariable(name, "f4", ("time", "lat", "lon"))[:] = values.random((48, 200, 300))
    return path


def netcdf() -> None:
    """Opening a file, reading all of it step by step, and which files are read at all."""
    from headgate.pipeline.sources.classic_netcdf import open_classic

    print("classic NetCDF")
    engines = [name for name, module in (("scipy", "scipy.io"), ("netcdf4", "netCDF4")) if has(module)]
    ways: dict[str, Callable[[Path], Any]] = {"by hand": open_classic}
    for engine in engines:
        ways[engine] = partial(_by_xarray, engine)

    if "scipy" in engines:
        with tempfile.TemporaryDirectory() as place:
            path = fields_of_sea(Path(place))
            assert len({round(_steps(way, path), 3) for way in ways.values()}) == 1, "they read other values"
            show("open", least({name: partial(way, path) for name, way in ways.items()}), 1e-3, "ms")
            reading: dict[str, Callable[[], object]] = {name: partial(_steps, way, path) for name, way in ways.items()}
            show("open and read 48 steps", least(reading), 1e-3, "ms")
    data = Path("tests/data/grid")
    for name, way in ways.items():
        refused = [file for file in _FILES if not _reads(way, data / file)]
        whole = (data / "classic.nc").read_bytes()
        with tempfile.TemporaryDirectory() as place:
            cut = Path(place) / "cut.nc"
            cut.write_bytes(whole[:-5])
            said = _says(way, cut)
        print(f"  {name}: does not read {', '.join(refused) or 'nothing of what is tested'}; of a cut file: {said}")
    for module in ("xarray", *(f"xarray, {name}" for name in ("scipy.io", "netCDF4") if has(name))):
        print(f"  import of {module}: {import_cost(module, 3)[0]:.2f} s of processor time")


def _by_xarray(engine: str, path: Path) -> Any:
    import xarray as xr

    return xr.open_dataset(path, engine=engine, decode_cf=False)


def _steps(way: Callable[[Path], Any], path: Path) -> float:
    """The sum of a variable, read step by step."""
    opened = way(path)
    return float(sum(opened["height"].isel(time=step).values.sum(dtype="f8") for step in range(48)))


def _reads(way: Callable[[Path], Any], path: Path) -> bool:
    with contextlib.suppress(Exception):
        way(path).load()
        return True
    return False


def _says(way: Callable[[Path], Any], path: Path) -> str:
    try:
        way(path).load()
    except Exception as error:  # noqa: BLE001 # what it says is the figure
        return f"{type(error).__name__}: {error}"
    return "nothing, it gives values"


# -- code without an event loop


async def _nothing() -> int:
    return 1


def bridges() -> None:
    """A call from a thread without a loop into one with a loop, and what the library adds to an import."""
    print("code without an event loop")
    with contextlib.ExitStack() as stack:
        loop = LoopThread("by hand")
        stack.callback(loop.close)
        ways: dict[str, Callable[[], object]] = {"by hand": lambda: [loop.run(_nothing(), 60.0) for _ in range(_CALLS)]}
        if has("anyio.from_thread"):
            from anyio.from_thread import start_blocking_portal

            portal = stack.enter_context(start_blocking_portal())
            ways["anyio: portal.call"] = lambda: [portal.call(_nothing) for _ in range(_CALLS)]
            ways["anyio: task with a time limit"] = lambda: [
                portal.start_task_soon(_nothing).result(60.0) for _ in range(_CALLS)
            ]
        show("a call", least(ways), 1e-6, "µs", _CALLS)
    for module in ("headgate.client", "headgate.client, anyio.from_thread"):
        cost_s, modules = import_cost(module, 5)
        print(f"  import of {module}: {cost_s:.3f} s of processor time, {modules} modules")


# -- trying again


class _Flaky:
    """Fails twice, then works, again and again."""

    def __init__(self) -> None:
        self.calls = 0

    async def ask(self) -> int:
        self.calls += 1
        if self.calls % 3:
            raise HeadgateError("it does not answer")
        return self.calls


def again() -> None:
    """A question that is asked until it is answered, two failures before each answer, without a pause between."""
    print("trying again")

    async def by_hand(flaky: _Flaky) -> int:
        while True:
            try:
                return await flaky.ask()
            except HeadgateError as error:
                FABRIC.debug("asked again: %s", error)
                await asyncio.sleep(0)

    async def all_of(way: Callable[[_Flaky], Any]) -> None:
        flaky = _Flaky()
        for _ in range(_CALLS):
            await way(flaky)

    ways: dict[str, Callable[[], object]] = {"by hand": lambda: asyncio.run(all_of(by_hand))}
    if has("tenacity"):
        import tenacity  # type: ignore[import-not-found, unused-ignore] # a peer

        async def by_tenacity(flaky: _Flaky) -> int:
            async for attempt in tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception_type(HeadgateError),
                wait=tenacity.wait_fixed(0),
                before_sleep=lambda state: FABRIC.debug("asked again: %s", state.outcome and state.outcome.exception()),
            ):
                with attempt:
                    return await flaky.ask()
            raise AssertionError

        ways["tenacity"] = lambda: asyncio.run(all_of(by_tenacity))
    if has("stamina"):
        import stamina  # type: ignore[import-not-found, unused-ignore] # a peer

        stamina.instrumentation.set_on_retry_hooks([lambda details: FABRIC.debug("asked again: %s", details.caused_by)])

        async def by_stamina(flaky: _Flaky) -> int:
            async for attempt in stamina.retry_context(
                on=HeadgateError, attempts=None, timeout=None, wait_initial=0, wait_max=0, wait_jitter=0
            ):
                with attempt:
                    return await flaky.ask()
            raise AssertionError

        ways["stamina"] = lambda: asyncio.run(all_of(by_stamina))
    show("an answer at the third attempt", least(ways), 1e-6, "µs", _CALLS)
    for module in ("asyncio", *(f"asyncio, {name}" for name in ("tenacity", "stamina") if name in ways)):
        print(f"  import of {module}: {import_cost(module, 3)[0]:.3f} s of processor time")


# -- stored records


def by_hand_write(tally: Tally) -> bytes:
    """An acknowledgement as it is stored, by `json`."""
    text = json.dumps({"kind": "acknowledgement", "format": 2, "body": asdict(tally)}, separators=(",", ":"))
    return seal(text.encode())


def by_hand_read(data: bytes) -> Tally:
    """An acknowledgement, every value of it checked by the type of its field."""
    found = json.loads(unseal(data))
    if (found["kind"], found["format"]) != ("acknowledgement", 2):
        raise ValueError("it is something else")
    body = found["body"]
    for each, kind in (("since", Since), ("begun", Begun)):
        if body.get(each) is not None:
            body[each] = kind(**_checked(kind, body[each]))
    for each in ("commit_delay", "event_delay", "jitter"):
        found = _checked(Histogram, body[each])
        body[each] = Histogram(found["count"], found["total_ms"], {int(n): _count(c) for n, c in found["bins"].items()})
    body["beyond"] = [(_count(first), _count(last)) for first, last in body["beyond"]]
    return Tally(**_checked(Tally, body))


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} should be a whole number from 0 on")
    return value


def _checked(kind: type, found: dict[str, Any]) -> dict[str, Any]:
    """The fields that a type has, each of the kind that is written beside it."""
    taken = {}
    for each in fields(kind):
        if each.name not in found:
            continue
        value = taken[each.name] = found[each.name]
        if each.type in ("Count", Count) or (each.type == "Count | None" and value is not None):
            _count(value)
        elif each.type == "dict[str, Count]":
            for number in value.values():
                _count(number)
        elif (each.type == "str" and not isinstance(value, str)) or (
            each.type == "float | None" and not isinstance(value, int | float | None)
        ):
            raise ValueError(f"{each.name!r} should be {each.type}, found {value!r}")
    return taken


def records() -> None:
    """An acknowledgement with three histograms, written and read."""
    print("stored records")
    tally = Tally(
        7, 0, 1_000_000, 900_000, {"latest": 99_000}, 1_000, mark=1_000_200, inbox=4_711, begun=Begun(1_000_300)
    )
    tally.since.delivered, tally.run, tally.reader = 200, "r" * 16, "a" * 16
    for delays in (tally.commit_delay, tally.event_delay, tally.jitter):
        for delay_ms in np.random.default_rng(2).gamma(2.0, 30.0, 5_000).tolist():
            delays.add(delay_ms)
    data = tally.encode()
    assert by_hand_read(by_hand_write(tally)) == tally == Tally.decode(data), "they read other values"
    print(f"  {len(data):,} bytes by msgspec, {len(by_hand_write(tally)):,} by json")
    writing: dict[str, Callable[[], object]] = {
        "msgspec": lambda: [tally.encode() for _ in range(_CALLS)],
        "json, dataclasses, checks by hand": lambda: [by_hand_write(tally) for _ in range(_CALLS)],
    }
    reading: dict[str, Callable[[], object]] = {
        "msgspec": lambda: [Tally.decode(data) for _ in range(_CALLS)],
        "json, dataclasses, checks by hand": lambda: [by_hand_read(data) for _ in range(_CALLS)],
    }
    show("write", least(writing), 1e-6, "µs", _CALLS)
    show("read", least(reading), 1e-6, "µs", _CALLS)
    print(f"  import of msgspec: {import_cost('msgspec', 3)[0]:.3f} s of processor time")


def main() -> int:
    """Measure all pairs."""
    for measure in (netcdf, bridges, again, records):
        measure()
    return 0


if __name__ == "__main__":
    sys.exit(main())
