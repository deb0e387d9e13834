"""Every interleaving of a step list with rows in flight, on a small tree: an exhaustive model of contract 2.

A state holds, for every site, its coverage and how far back its cache reaches; for every connection, what was sent,
what is in flight and a request that is under way; and how far the step list has come. Anything that can happen next
(a row is published, sent, received or evicted, a request is answered, a step is taken) leads to another state. The
check visits all of them: a row must never be delivered twice or out of order, and where nothing can happen any more
every site must have every row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headgate.tuning.shape import Shape
from headgate.tuning.steps import Step

# A connection: the last row sent (None before the request is answered), rows in flight, the request under way.
Connection = tuple[int | None, tuple[int, ...], int | None]


@dataclass(frozen=True, slots=True)
class SwitchRules:
    """The rules of contract 2; each can be switched off to see that the check notices."""

    ask_for_the_missing: bool = True
    drop_what_is_covered: bool = True
    ask_further_up: bool = True


@dataclass(frozen=True, slots=True)
class Exploration:
    """States visited, and the first fault with the actions that lead to it (None when there is none)."""

    states: int
    ends: int
    fault: str | None = None
    trace: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """One moment of the system. `links` is sorted by (parent, child); `wanted` are rows to be fetched from above."""

    covered: tuple[int, ...]
    evicted: tuple[int, ...]
    links: tuple[tuple[tuple[int, int], Connection], ...]
    wanted: frozenset[tuple[int, int]]
    step: int


class Model:
    """A tree, a step list, and how many rows the root publishes while it runs."""

    def __init__(
        self, shape: Shape, steps: Iterable[Step], rows: int = 2, cache: int = 1, rules: SwitchRules | None = None
    ) -> None:
        self.shape, self.steps = shape, tuple(steps)
        self.rows, self.cache, self.rules = rows, cache, rules or SwitchRules()

    def start(self) -> State:
        """Nothing published yet, every link open."""
        links = {(parent, site): (0, (), None) for site, parent in enumerate(self.shape.parents) if parent >= 0}
        size = len(self.shape.parents)
        return State((0,) * size, (0,) * size, tuple(sorted(links.items())), frozenset(), 0)

    def check(self, limit: int = 2_000_000) -> Exploration:
        """Visit every state; stop at the first fault."""
        first = self.start()
        came: dict[State, tuple[State | None, str]] = {first: (None, "start")}
        pending, ends = deque([first]), 0
        while pending:
            state = pending.popleft()
            moved = False
            for action, after, fault in self.actions(state):
                moved = True
                if fault is not None:
                    return Exploration(len(came), ends, fault, (*_trace(came, state), action))
                if after not in came:
                    if len(came) >= limit:
                        raise ValueError(f"more than {limit} states: use fewer rows or a smaller tree")
                    came[after] = (state, action)
                    pending.append(after)
            if not moved:
                ends += 1
                missing = [site for site, row in enumerate(state.covered) if row < self.rows]
                if missing or state.step < len(self.steps):
                    fault = f"nothing can happen any more, and sites {missing} miss rows"
                    return Exploration(len(came), ends, fault, tuple(_trace(came, state)))
        return Exploration(len(came), ends)

    def actions(self, state: State) -> Iterator[tuple[str, State, str | None]]:
        """Everything that can happen next: what it is, where it leads, and the fault if it is one."""
        links = dict(state.links)
        root = self.shape.root
        if state.covered[root] < self.rows:
            yield "publish", self._with(state, covered=_set(state.covered, root, state.covered[root] + 1)), None
        for site, row in enumerate(state.covered):
            if site != root and row - state.evicted[site] > self.cache:
                after = _set(state.evicted, site, state.evicted[site] + 1)
                yield f"{site} evicts", self._with(state, evicted=after), None
        for (parent, child), (sent, queue, request) in links.items():
            if request is not None:
                mark = request if self.rules.ask_for_the_missing else state.covered[parent]
                yield f"{parent} answers {child}", self._link(state, (parent, child), (mark, queue, None)), None
            if sent is not None and sent < state.covered[parent] and len(queue) < 2:
                yield from self._send(state, parent, child, sent, queue)
            if queue:
                yield from self._receive(state, parent, child, links[parent, child])
        yield from self._fetches(state, links)
        yield from self._step(state, links)

    def _send(
        self, state: State, parent: int, child: int, sent: int, queue: tuple[int, ...]
    ) -> Iterator[tuple[str, State, str | None]]:
        row = sent + 1
        if row > state.evicted[parent]:
            after = self._link(state, (parent, child), (row, (*queue, row), None))
            yield f"{parent} sends {row} to {child}", after, None
        elif self.rules.ask_further_up and (parent, row) not in state.wanted:
            yield f"{parent} asks for {row}", self._with(state, wanted=state.wanted | {(parent, row)}), None

    def _receive(
        self, state: State, parent: int, child: int, link: Connection
    ) -> Iterator[tuple[str, State, str | None]]:
        sent, queue, request = link
        row, rest = queue[0], queue[1:]
        after = self._link(state, (parent, child), (sent, rest, request))
        action = f"{child} receives {row} from {parent}"
        if row == state.covered[child] + 1:
            yield action, self._with(after, covered=_set(state.covered, child, row)), None
        elif row <= state.covered[child]:
            fault = None if self.rules.drop_what_is_covered else f"row {row} is delivered twice at site {child}"
            yield action, after, fault
        else:
            yield action, after, f"row {row} is delivered at site {child} before row {state.covered[child] + 1}"

    def _fetches(
        self, state: State, links: dict[tuple[int, int], Connection]
    ) -> Iterator[tuple[str, State, str | None]]:
        """A row that a cache no longer holds comes from the site above, or that site asks further up."""
        for site, row in state.wanted:
            for above, below in links:
                if below != site:
                    continue
                if row > state.evicted[above] and row <= state.covered[above]:
                    yield f"{above} hands {row} to {site}", self._handed(state, links, site, row), None
                elif (above, row) not in state.wanted and row <= state.evicted[above]:
                    yield f"{above} asks for {row}", self._with(state, wanted=state.wanted | {(above, row)}), None

    def _handed(self, state: State, links: dict[tuple[int, int], Connection], site: int, row: int) -> State:
        """The row passes through the site: to the links that wait for it, and to the sites below that asked for it."""
        after = self._with(state, wanted=state.wanted - {(site, row)})
        for (parent, child), (sent, queue, request) in links.items():
            if parent == site and sent == row - 1 and len(queue) < 2:
                after = self._link(after, (parent, child), (row, (*queue, row), request))
            if parent == site and (child, row) in after.wanted:
                after = self._handed(after, dict(after.links), child, row)
        return after

    def _step(self, state: State, links: dict[tuple[int, int], Connection]) -> Iterator[tuple[str, State, str | None]]:
        if state.step == len(self.steps):
            return
        step = self.steps[state.step]
        after = self._with(state, step=state.step + 1)
        pair = (step.peer, step.site)
        if step.kind == "connect":
            yield f"{step.site} connects to {step.peer}", self._link(after, pair, (None, (), None)), None
        elif step.kind == "catch up":
            sent, queue, _ = links[pair]
            yield (
                f"{step.site} asks {step.peer}",
                self._link(after, pair, (sent, queue, state.covered[step.site])),
                None,
            )
        else:
            answered = all(
                sent is not None and request is None
                for (_, child), (sent, _, request) in links.items()
                if child == step.site
            )
            if answered:
                kept = tuple(item for item in state.links if item[0] != pair)
                yield f"{step.site} drops {step.peer}", self._with(after, links=kept), None

    def _link(self, state: State, pair: tuple[int, int], connection: Connection) -> State:
        links = dict(state.links)
        links[pair] = connection
        return self._with(state, links=tuple(sorted(links.items(), key=lambda item: item[0])))

    @staticmethod
    def _with(
        state: State,
        *,
        covered: tuple[int, ...] | None = None,
        evicted: tuple[int, ...] | None = None,
        links: tuple[tuple[tuple[int, int], Connection], ...] | None = None,
        wanted: frozenset[tuple[int, int]] | None = None,
        step: int | None = None,
    ) -> State:
        return State(
            state.covered if covered is None else covered,
            state.evicted if evicted is None else evicted,
            state.links if links is None else links,
            state.wanted if wanted is None else wanted,
            state.step if step is None else step,
        )


def _set(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _trace(came: dict[State, tuple[State | None, str]], state: State) -> list[str]:
    actions: list[str] = []
    at: State | None = state
    while at is not None:
        at, action = came[at]
        actions.append(action)
    return actions[-2::-1]
