"""Thousands of seeded disasters in virtual time: ``python -m headgate_studies.testing.simulate`` (``make simulate``).

Each seed is a deployment, a load and a schedule of faults and changes; the production machines run on a simulated
server, and every promise is checked at every step. See docs/simulator.md.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from headgate.protocol.trace import Trace
from headgate_studies.testing.mutation import Hunting, score
from headgate_studies.testing.world.coverage import STATES
from headgate_studies.testing.world.deployed import Result
from headgate_studies.testing.world.families import make_scenario, named_scenario
from headgate_studies.testing.world.scenario import Scenario
from headgate_studies.testing.world.shrink import shrink
from headgate_studies.testing.world.simulation import Simulation

_BATCH: Final = 2
_SHOWN: Final = 5
_WIDTH: Final = 120
_MODULE: Final = "headgate_studies.testing.simulate"
Counts = tuple[list[Result], float]


def _run(seeds: Iterable[int]) -> Counts:
    """Run some seeds; returns what they did and the CPU seconds that they took."""
    gc.freeze()  # a run makes many small values and few cycles
    gc.set_threshold(50_000, 20, 100)
    began = time.process_time()
    found = [Simulation(make_scenario(seed)).run() for seed in seeds]
    return found, time.process_time() - began


class Totals:
    """The sums over all seeds."""

    def __init__(self) -> None:
        self.seeds = 0
        self.events = 0
        self.simulated_s = 0.0
        self.cpu_s = 0.0
        self.batches = 0
        self.delivered = 0
        self.given_up = 0
        self.in_flight_checks = 0
        self.faults: Counter[str] = Counter()
        self.met: Counter[tuple[str, str]] = Counter()
        self.failed: list[Result] = []

    def add(self, results: list[Result], cpu_s: float) -> None:
        """Count what some seeds did."""
        self.cpu_s += cpu_s
        for result in results:
            self.seeds += 1
            self.events += result.events
            self.simulated_s += result.simulated_s
            self.batches += result.batches
            self.delivered += result.delivered
            self.given_up += result.given_up
            self.in_flight_checks += result.in_flight_checks
            self.faults.update({kind: count for kind, count in result.faults.items() if kind != "commit"})
            self.met.update(result.met)
            if result.violation is not None:
                self.failed.append(result)

    def summary(self) -> dict[str, object]:
        """The last line."""
        return {
            "seeds": self.seeds,
            "failures": len(self.failed),
            "failed_seeds": sorted(each.seed for each in self.failed),
            "events": self.events,
            "simulated_hours": round(self.simulated_s / 3600, 3),
            "cpu_s": round(self.cpu_s, 1),
            "events_per_cpu_s": round(self.events / max(self.cpu_s, 1e-9)),
            "batches_per_simulated_s": round(self.batches / max(self.simulated_s, 1e-9), 2),
            "rows_delivered": self.delivered,
            "rows_given_up": self.given_up,
            "in_flight_checks": self.in_flight_checks,
            "faults": dict(sorted(self.faults.items())),
        }


def _simulate(seeds: Iterator[int], total: int | None, jobs: int, minutes: float | None, console: Console) -> Totals:
    """Run seeds on some cores until they or the time are over."""
    totals, began = Totals(), time.monotonic()
    end_s = None if minutes is None else began + 60 * minutes
    columns = (TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[speed]}"))
    with ProcessPoolExecutor(jobs) as pool, Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        bar = progress.add_task("seeds", total=total, speed="")
        running: set[Future[Counts]] = set()
        while True:
            while len(running) < 2 * jobs and (end_s is None or time.monotonic() < end_s):
                batch = list(itertools.islice(seeds, _BATCH))
                if not batch:
                    break
                running.add(pool.submit(_run, batch))
            if not running:
                return totals
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                totals.add(*each.result())
            speed = totals.seeds / (time.monotonic() - began)
            state = f"{speed:.1f} seeds/s, {len(totals.failed)} failures"
            progress.update(bar, completed=totals.seeds, speed=state)


def _coverage(totals: Totals) -> Table:
    """Which fault met which state how often."""
    table = Table("fault or change", "times", *STATES, title="What met which state of a relay")
    for kind, count in sorted(totals.faults.items()):
        table.add_row(kind, str(count), *(str(totals.met[kind, state] or "-") for state in STATES))
    return table


def _explain(result: Result, console: Console) -> None:
    """A failure: the command that replays it, a small schedule that breaks the same promise, and how it ended."""
    assert result.violation is not None
    scenario = make_scenario(result.seed)
    console.print(f"\nseed {result.seed}: {result.violation}", markup=False)
    left_out = shrink(scenario, result.violation)
    kept = sorted(set(range(len(scenario.actions))) - left_out)
    print(f"replay with: python -m {_MODULE} --replay {result.seed} --keep {','.join(map(str, kept))} --trace")
    replay(scenario, left_out, console, keep=25)


def replay(scenario: Scenario, left_out: frozenset[int], console: Console, keep: int | None) -> Result:
    """Run one scenario again, show its schedule and the last lines of what happened (None: all of them)."""
    trace = Trace(keep)
    for place, action in enumerate(scenario.actions):
        if place not in left_out:
            console.print(f"  {place:4} {action}", markup=False, highlight=False)
    result = Simulation(scenario.without(left_out), trace).run()
    for line in trace.lines:
        print(line)
    console.print(f"seed {scenario.seed}, {result.events} events, trace {trace.digest}", markup=False)
    console.print(result.violation or "all promises were kept", markup=False)
    return result


def _places(text: str) -> frozenset[int]:
    return frozenset(int(each) for each in text.split(",") if each)


def _seeds(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last)) if last else range(int(first))


def main() -> int:
    """Run seeds, replay one, or measure the mutation score."""
    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}", description=__doc__)
    parser.add_argument("--seeds", default="", help="a range such as 0:500; without it 0:500, or no end with --minutes")
    parser.add_argument("--minutes", default="", help="stop after so many minutes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; all cores by default")
    parser.add_argument("--replay", help="run one seed, or one of a family as loops:3, and show what happened")
    parser.add_argument("--without", default="", help="with --replay: places of actions to leave out, as 3,7,9")
    parser.add_argument("--keep", default="", help="with --replay: places of the only actions to keep")
    parser.add_argument("--trace", action="store_true", help="with --replay: every event and command")
    parser.add_argument("--mutants", action="store_true", help="plant faults in the protocol and look for them")
    parser.add_argument("--only", default="", help="with --mutants: those whose name holds this")
    parser.add_argument("--most-seeds", type=int, default=150, help="with --mutants: give up after so many seeds")
    parser.add_argument("--no-hints", action="store_true", help="with --mutants: hunt as if none had been found")
    parser.add_argument("--remember", action="store_true", help="with --mutants: write down what found each of them")
    parser.add_argument("--table", type=Path, help="with --mutants: the document whose table is written anew")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a run
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", _MODULE, *sys.argv[1:]])  # noqa: S606 # itself
    console = Console(stderr=True, width=max(Console().width, _WIDTH))
    if options.replay is not None:
        family, _, seed = options.replay.rpartition(":")
        scenario = named_scenario(family, int(seed)) if family else make_scenario(int(seed))
        left_out = _places(options.without)
        if options.keep:
            left_out |= frozenset(range(len(scenario.actions))) - _places(options.keep)
        return int(replay(scenario, left_out, console, None if options.trace else 0).violation is not None)
    if options.mutants:
        hints, table = not options.no_hints, options.table
        hunting = Hunting(options.jobs, options.most_seeds, options.only, hints, table, options.remember)
        return score(hunting, console)
    minutes = float(options.minutes) if options.minutes else None
    chosen = _seeds(options.seeds or "0:500") if options.seeds or minutes is None else None
    seeds = iter(chosen) if chosen is not None else itertools.count()
    totals = _simulate(seeds, None if chosen is None else len(chosen), options.jobs, minutes, console)
    console.print(_coverage(totals))
    for failed in sorted(totals.failed, key=lambda each: each.seed)[:_SHOWN]:
        _explain(failed, console)
    print(json.dumps(totals.summary()))
    return int(bool(totals.failed))


if __name__ == "__main__":
    sys.exit(main())
