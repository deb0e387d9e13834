"""Subscriptions that are thinned or averaged always: what they are owed, a family, and its planted faults.

What is left is worked out row by row, from the rows that were committed and the times of their commits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from headgate.model import Subscription
from headgate.wire.block import Block
from headgate_studies.testing.world.mutant import Mutant
from headgate_studies.testing.world.oracle import StreamTruth
from headgate_studies.testing.world.scenario import Action, Scenario
from headgate_studies.testing.world.small import commits, small_scenario, subscription

_KEY: Final = "extra"
_KEYS: Final = 7
_VALUE: Final = "value"


@dataclass(slots=True)
class _Open:
    """A window of one key: its number and the values in it."""

    number: int
    values: list[int]


@dataclass
class ThinnedTruth:
    """What one subscription gets of its rows. `exact` where the relay at its site keeps what it remembers all along.

    A relay that begins anew has forgotten: it delivers one more row of an interval, and leaves out the window that is
    under way. What it delivers of a window is the mean of the whole window all the same.
    """

    subscription: Subscription
    exact: bool = True
    _upto: int = 0
    _last: dict[int, int] = field(default_factory=dict)
    _second: int = -1
    _count: int = 0
    _open: dict[int, _Open] = field(default_factory=dict)
    _first: int | None = None

    def check(self, block: Block, owed: Sequence[int], truth: StreamTruth) -> str | None:
        """What is wrong with the rows of a block, of which these were matched; None where nothing is."""
        got = dict(zip(block.seqs.tolist(), block.rows.column(_VALUE).to_pylist(), strict=True))
        fresh = [seq for seq in owed if seq > self._upto]  # a reader may begin again from an earlier place
        self._upto = max(self._upto, block.upto)
        for seq, value in zip(fresh, truth.values(fresh), strict=True):
            known = (
                self._averaged(seq, value, truth) if self.subscription.average_s else self._thinned(seq, value, truth)
            )
            found = got.get(seq)
            if self.exact and found != known:
                return f"row {seq} of ({block.after}, {block.upto}] is delivered as {found}, owed is {known}"
            if not self.exact and self.subscription.average_s and found not in (None, known):
                return (
                    f"row {seq} of ({block.after}, {block.upto}] has {found} for the mean of a window, which is {known}"
                )
            if not self.exact and self.subscription.every_s and found is None and known is not None:
                return f"row {seq} of ({block.after}, {block.upto}] is left out, the first of its interval"
        return None

    def _key(self, value: int) -> int:
        select = self.subscription.select
        return value % _KEYS if select is None or _KEY in select else 0

    def _thinned(self, seq: int, value: int, truth: StreamTruth) -> int | None:
        """The value, None where the row is left out."""
        time_s, key, mine = truth.time_s(seq), self._key(value), self.subscription
        if mine.every_s is not None:
            interval = math.floor(time_s / mine.every_s)
            if interval <= self._last.get(key, -1):
                return None
            self._last[key] = interval
        if mine.at_most_rows_per_s is not None:
            if math.floor(time_s) > self._second:
                self._second, self._count = math.floor(time_s), 0
            if math.floor(time_s) < self._second or self._count >= mine.at_most_rows_per_s:
                return None
            self._count += 1
        return value

    def _averaged(self, seq: int, value: int, truth: StreamTruth) -> int | None:
        """The mean of the window that a row closes, None where it closes none."""
        assert self.subscription.average_s is not None
        number, key = math.floor(truth.time_s(seq) / self.subscription.average_s), self._key(value)
        self._first = number if self._first is None else self._first
        window = self._open.setdefault(key, _Open(number, []))
        if number < window.number:
            return None
        mean = None
        if number > window.number:
            if window.number > self._first:
                mean = round(sum(window.values) / len(window.values))
            window = self._open[key] = _Open(number, [])
        window.values.append(value)
        return mean


def is_thinned(subscription: Subscription) -> bool:
    """Whether some of its rows are left out always."""
    return any((subscription.every_s, subscription.at_most_rows_per_s, subscription.average_s))


def thinned_always(seed: int, random: Random) -> Scenario:
    """Rows are thinned and averaged at two sites; links and readers fail, and in half of the runs those sites too."""
    forgetful = random.random() < 0.5
    kinds = ("cut", "lossy", "pause", "fill_inbox", "fill_site", "kill_reader", "loop_again", "replace_reader")
    actions = [
        *commits(random, random.choice((0.1, 0.25)), random.choice((3, 12))),
        *(
            Action(random.uniform(1.0, 11.0), random.choice(kinds), random.choice(("s0", "s1", "s2")), number=1.5)
            for _ in range(random.choice((0, 4, 8)))
        ),
        Action(random.uniform(1.0, 10.0), "kill", "s0", number=1.0),
    ]
    if forgetful:
        actions += [
            Action(random.uniform(1.0, 11.0), random.choice(("kill", "kill", "replace")), place, number=1.5)
            for place in ("s1", "s2", "s2")
        ]
    rules: tuple[dict[str, float], ...] = (
        {"every_s": 2.0}, {"every_s": 0.5}, {"average_s": 1.0}, {"average_s": 3.0}, {"at_most_rows_per_s": 4.0},
        {"every_s": 1.0, "at_most_rows_per_s": 3.0},
    )  # fmt: skip
    mine = [
        subscription(
            f"u{number}", random.choice(("s1", "s2")), select=random.choice((None, ("value",))), **random.choice(rules)
        )
        for number in range(3)
    ]
    made = small_scenario(
        seed,
        [*mine, subscription("u3", "s2")],
        actions,
        classes=random.choice((1, 5)),
        max_block=random.choice((400, 1 << 20)),
    )
    streams = {name: replace(each, key=(_KEY,)) for name, each in made.first.deployment.streams.items()}
    return replace(made, first=replace(made.first, deployment=replace(made.first.deployment, streams=streams)))


THINNED_FAMILIES: Final = (thinned_always,)
THINNED_MUTANTS: Final = (
    Mutant(
        "blocks without rows are thinned by key",
        "reduction.constant_thinning",
        "        if not rows.num_rows:  # a block may be coverage alone\n            return mask, gone\n",
        "",
    ),
    Mutant(
        "the first interval of each key is taken for known",
        "reduction.constant_thinning",
        "            if intervals[place] > latest[group]:\n",
        "            if intervals[place] > latest[group] and latest[group] != _NEVER:\n",
    ),
    Mutant(
        "intervals of keys are forgotten from block to block",
        "reduction.constant_thinning",
        "        self._last.update(zip(keys, latest.tolist(), strict=True))\n",
        "        pass\n",
    ),
    Mutant(
        "a window counts the row that closes it",
        "reduction.constant_averages",
        "            if number == windows[at].number:\n                mine[place] = at\n",
        "            mine[place] = closed.get(place, at)\n",
    ),
    Mutant(
        "the window that is under way after a restart is delivered",
        "reduction.constant_averages",
        "                if at >= 0 and windows[at].number > self._first:\n",
        "                if at >= 0:\n",
    ),
    Mutant(
        "rows of a second are counted anew for each block",
        "reduction.constant_thinning",
        "            if seconds[place] > self._second:\n",
        "            if seconds[place] > self._second or place == 0:\n",
    ),
)
