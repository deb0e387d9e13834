"""The mutation score: each planted fault is hunted by seeds of the simulated world (``make simulate-mutants``).

`hints.json` remembers by which scenario each was found before. That one is tried first, so the whole table takes
minutes; where it finds nothing any more, the hunt goes on through the seeds as if nothing were known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

from headgate_studies.testing.world.faults import MUTANTS
from headgate_studies.testing.world.mutant import Mutant
from headgate_studies.testing.world.mutants import Hint, MutantOutcome, hunt

HINTS: Final = Path(__file__).parent / "world" / "hints.json"
_BEGIN: Final = "<!-- mutants -->\n"
_END: Final = "<!-- end of mutants -->\n"


@dataclass(frozen=True, slots=True)
class Hunting:
    """How planted faults are hunted: so many processes, at most so many seeds for each, whether hints are tried first.

    `only` chooses those whose name holds it. `table` is a document whose table is written anew; `remember` has the
    hints written too.
    """

    jobs: int
    most_seeds: int
    only: str = ""
    hints: bool = True
    table: Path | None = None
    remember: bool = False


def read_hints() -> dict[str, Hint]:
    """By planted fault, the scenario that found it before."""
    found = json.loads(HINTS.read_text())
    return {name: (str(family), int(seed)) for name, (family, seed) in found.items()}


def score(hunting: Hunting, console: Console) -> int:
    """Hunt each planted fault, show how it was found, and print the sums; 0 when all were found."""
    chosen = [each for each in MUTANTS if hunting.only in each.name]
    hints = read_hints() if hunting.hints else {}
    outcomes = _hunt_all(chosen, hints, hunting, console)
    rows = [outcomes[mutant.name] for mutant in chosen]
    if hunting.remember:
        _remember(rows)
    if hunting.table is not None:
        _write_table(hunting.table, rows)
    for line in _table(rows):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    found = sum(each.found is not None for each in rows)
    missed = [each.name for each in rows if each.found is None]
    print(json.dumps({"mutants": len(rows), "found": found, "missed": missed, "seeds": sum(e.seeds for e in rows)}))
    return 0 if found == len(rows) else 1


def _hunt_all(
    chosen: Sequence[Mutant], hints: dict[str, Hint], hunting: Hunting, console: Console
) -> dict[str, MutantOutcome]:
    outcomes: dict[str, MutantOutcome] = {}
    with ProcessPoolExecutor(hunting.jobs) as pool, Progress(console=console) as progress:
        bar = progress.add_task("mutants", total=len(chosen))
        waiting = {pool.submit(hunt, each, hunting.most_seeds, hints.get(each.name)) for each in chosen}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for each in done:
                outcome = each.result()
                outcomes[outcome.name] = outcome
                progress.console.print(f"{outcome.seeds:4} {outcome.name}: {outcome.found}", markup=False)
                progress.advance(bar)
    return outcomes


def _table(rows: Iterable[MutantOutcome]) -> list[str]:
    """The table as Markdown."""
    lines = ["| Planted fault | Found by | Seeds until found |", "|---|---|---|"]
    for each in rows:
        by = f"`{each.by[0]}:{each.by[1]}`" if each.by is not None else "not found"
        lines.append(f"| {each.name} | {by} | {each.seeds if each.found else f'not within {each.seeds}'} |")
    return lines


def _write_table(document: Path, rows: Sequence[MutantOutcome]) -> None:
    """Put the table between its two marks."""
    text = document.read_text()
    before, rest = text.split(_BEGIN)
    _, after = rest.split(_END)
    found = sum(each.found is not None for each in rows)
    summary = f"{found} of {len(rows)} planted faults were found, by {sum(each.seeds for each in rows)} seeds in all.\n"
    document.write_text(f"{before}{_BEGIN}{summary}\n" + "\n".join(_table(rows)) + f"\n{_END}{after}")


def _remember(rows: Iterable[MutantOutcome]) -> None:
    """Write down which scenario found what; what was not hunted or not found keeps the hint that it had."""
    known = {**read_hints(), **{each.name: each.by for each in rows if each.by is not None}}
    mine = {each.name: known[each.name] for each in MUTANTS if each.name in known}
    body = ",\n".join(f"  {json.dumps(name)}: {json.dumps(list(hint))}" for name, hint in mine.items())
    HINTS.write_text(f"{{\n{body}\n}}\n")
