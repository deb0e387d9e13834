"""A run of the live tuner as home sees it: what is wanted, what every site is told, and which changes are let through.

A run goes on as long as sites, subscriptions, objective and options stay what they are; who hangs where may change all
the while. Everything here is a function of its arguments: `headgate.service.live_tuner` has connection and catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from headgate.errors import HeadgateError
from headgate.model import Deployment, Plan, Tree, parse_duration
from headgate.protocol.tuning import AskCommit, HomeWord, TreeBrief, TuningBrief
from headgate.relay.unit_cores import MODES, settings_of
from headgate.tuning.constraints import CompiledConstraint, compile_constraint
from headgate.tuning.deployment import DEFAULT_OBJECTIVE
from headgate.tuning.language.vocabulary import Vocabulary
from headgate.tuning.overlay import PieceSizes
from headgate.tuning.protocol.streams import IMPLICIT, check_trees
from headgate.tuning.scene import MeasuredScene, Scene
from headgate.tuning.search import TOLERANCE

PLANNER, EVERY, MODE, APPROXIMATE = "planner", "tuner_every", "tuner_mode", "tuner_approximate"
EVERY_S = 30.0
PHASES = 12
"""Maintenance periods of an optimisation period, as in the paper (10 s of 120 s)."""


class RefusedChangeError(HeadgateError):
    """A change that home does not put in force."""

    usual_kind = "conflict"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a run is to do: the options of the deployment file, or what an operator gives in their place."""

    objective: str
    constraints: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    every_s: float = EVERY_S
    levels: int = 3
    approximate: float | None = None
    measured: MeasuredScene | None = None
    """Figures of links and sites that are given, so that nobody measures."""

    @classmethod
    def of(cls, deployment: Deployment) -> Wishes:
        """What the deployment file asks for."""
        options = deployment.options
        share = options.get(APPROXIMATE)
        return cls(
            deployment.objective or DEFAULT_OBJECTIVE,
            deployment.constraints,
            read_modes(options.get(MODE, "")),
            parse_duration(str(options[EVERY])) if EVERY in options else EVERY_S,
            approximate=None if share is None else float(share),
        )


def read_modes(given: Any) -> tuple[str, ...]:
    """Modes from a text with commas or from a list of names.

    >>> read_modes("random, concurrent")
    ('random', 'concurrent')
    """
    names = [each.strip() for each in given.split(",")] if isinstance(given, str) else list(map(str, given))
    found = tuple(name for name in names if name and name != "bottleneck")
    for name in found:
        if name not in MODES:
            known = ", ".join(("bottleneck", *MODES))
            raise HeadgateError(f"there is no mode {name!r} of the tuner", hint=f"known: {known}")
    return found


@dataclass(frozen=True)
class TuningRun:
    """One run: the number that all its letters carry, what is wanted, and the streams as overlays."""

    number: int
    began_s: float
    wishes: Wishes
    scene: Scene
    members: Mapping[str, frozenset[str]]
    seen: Any = None
    """What of the deployment it was made from: another value means another run."""
    locked: dict[str, tuple[str, int, float]] = field(default_factory=dict)
    """Sites that a change in force has touched and whose members are still on their way: owner, period, until when."""

    @classmethod
    def begin(
        cls, number: int, began_s: float, wishes: Wishes, scene: Scene, plan: Plan, seen: Any = None
    ) -> TuningRun:
        """Make a run; what sites cannot work out by messages is refused here."""
        members = {stream: frozenset(plan.trees[stream].members) for stream in scene.streams if stream in plan.trees}
        run = cls(number, began_s, wishes, scene, members, seen)
        brief = run._brief(scene.names[0])
        for tree in brief.trees:
            settings = settings_of(brief, tree)
            if len(brief.trees) > 1:
                check_trees(settings)
        return run

    @property
    def constraints(self) -> tuple[str, ...]:
        """What has to hold, with what is always in force."""
        return (*IMPLICIT, *self.wishes.constraints)

    @property
    def streams(self) -> list[str]:
        """Streams with a tree, in the order of the trees' numbers."""
        return [stream for stream in self.scene.streams if stream in self.members]

    @property
    def maintenance_s(self) -> float:
        """Seconds between two reports of a site."""
        return self.wishes.every_s / PHASES

    def word(self, site: str, known_run: int, plan: Plan) -> HomeWord:
        """What a site is told: its parents in the plan in force, and everything else when it is in another run."""
        numbers = self.scene.numbers
        if site not in numbers:
            return HomeWord(0)
        parents = tuple(_parent(plan.trees.get(stream), site, numbers) for stream in self.streams)
        return HomeWord(self.number, parents, None if known_run == self.number else self._brief(site))

    def _brief(self, site: str) -> TuningBrief:
        scene, wishes = self.scene, self.wishes
        number, size = scene.numbers[site], len(scene.names)
        links = {
            name: tuple(metric.between(number, other) for other in range(size)) for name, metric in scene.links.items()
        }
        trees = []
        for stream in self.streams:
            overlay, root = scene.overlays[stream], next(f.root for f in scene.problem.flows if f.name == stream)
            sizing = overlay.wanted.sizing
            assert isinstance(sizing, PieceSizes)
            trees.append(
                TreeBrief(
                    stream,
                    scene.numbers[root],
                    site in self.members[stream],
                    int(overlay.client_counts[number]),
                    overlay.wanted.bits[number],
                    sizing,
                    {name: float(values[number]) for name, values in overlay.constants.items()},
                )
            )
        return TuningBrief(
            self.number,
            self.began_s,
            tuple(scene.names),
            number,
            wishes.objective,
            self.constraints,
            wishes.levels,
            self.maintenance_s,
            wishes.every_s,
            wishes.modes,
            wishes.approximate,
            wishes.measured is not None,
            links,
            tuple(trees),
            None if scene.joins is None else tuple(sorted(scene.joins)),
        )

    def changed(self, plan: Plan, owner: str, asked: AskCommit) -> Plan:
        """The plan after a change that a site asks for.

        Refused where another run is on, where the tree has changed meanwhile, where the sites are not of the owner's
        unit or cannot connect, where what comes out is no tree, or where a constraint would be missed by more.
        """
        if asked.run != self.number or not 0 <= asked.tree < len(self.streams):
            raise RefusedChangeError(f"{owner} asks for a change of run {asked.run}, and run {self.number} is on")
        stream, names = self.streams[asked.tree], self.scene.names
        tree = plan.trees[stream]
        unit = _unit(tree, owner, self.wishes.levels)
        parents = dict(tree.parents)
        for moved in asked.moves:
            if not all(0 <= each < len(names) for each in moved):
                raise RefusedChangeError(f"{owner} asks for a change of sites that there are not")
            site, parent, before = (names[each] for each in moved)
            if not {site, parent} <= unit:
                raise RefusedChangeError(f"{site} and {parent} are not both in the unit of {owner}")
            if self.scene.joins is not None and moved[:2] not in self.scene.joins:
                raise RefusedChangeError(f"{site} and {parent} cannot connect")
            if tree.parents.get(site) != before:
                raise RefusedChangeError(f"{site} does not hang below {before} any more")
            parents[site] = parent
        try:
            after = Tree(stream, tree.root, parents)
        except ValueError as error:
            raise RefusedChangeError(f"what {owner} asks for is no tree: {error}") from None
        found = Plan({**plan.trees, stream: after})
        self._check(plan, found)
        return found

    def _check(self, before: Plan, after: Plan) -> None:
        """Refuse a change after which a constraint is missed by more than before, as far as home has the figures.

        Units keep to constraints by what they hear. While letters are lost or a unit is down, that is not all of the
        plan. Latencies are known to those who measured them, so constraints on those are the units' alone.
        """
        shapes = [self.scene.shapes(plan) for plan in (before, after)]
        for limit in self.limits:
            was, now = (limit.violation(self.scene.cost(limit.compiled, each)) for each in shapes)
            if now > was + TOLERANCE * max(1.0, was):
                raise RefusedChangeError(f"constraint `{limit.text}` would be missed")

    @cached_property
    def limits(self) -> tuple[CompiledConstraint, ...]:
        """The constraints that home can check: those without figures of links that only sites measure."""
        words = Vocabulary.installed()
        every = [compile_constraint(text, words) for text in self.constraints]
        fixed = self.wishes.measured is not None
        return tuple(each for each in every if fixed or "link_latency" not in each.compiled.metrics)

    def lock(self, owner: str, asked: AskCommit, now_s: float) -> None:
        """Keep others from the sites that a change touches until its members have moved, for a period at most."""
        names = self.scene.names
        touched = {names[each] for moved in asked.moves for each in moved}
        for site in sorted(touched):
            holder, period, until_s = self.locked.get(site, ("", 0, 0.0))
            if until_s > now_s and (holder, period) != (owner, asked.period):
                raise RefusedChangeError(f"{site} is still on its way in a change of {holder}")
        self.locked.update(dict.fromkeys(touched, (owner, asked.period, now_s + self.wishes.every_s)))

    def unlock(self, owner: str, period: int) -> None:
        """All members of a change have moved, or it was not put in force."""
        for site in [site for site, (holder, of, _) in self.locked.items() if (holder, of) == (owner, period)]:
            del self.locked[site]


def _parent(tree: Tree | None, site: str, numbers: Mapping[str, int]) -> int:
    if tree is None or site not in tree.members:
        return -2
    return -1 if site == tree.root else numbers[tree.parents[site]]


def _unit(tree: Tree, owner: str, levels: int) -> set[str]:
    """The sites of an optimisation unit: the owner, its parent, and the levels below it."""
    if owner not in tree.members:
        return set()
    row, found = [owner], {owner, tree.parents.get(owner, owner)}
    for _ in range(levels - 1):
        row = [child for child, parent in tree.parents.items() if parent in row]
        found.update(row)
    return found


def without_plan(deployment: Deployment) -> Any:
    """What of a deployment a run is made from."""
    kept = replace(deployment, plan=None)
    return kept.sites, kept.links, kept.subscriptions, kept.streams, kept.objective, kept.constraints, kept.options
