"""A family of scenarios about filters with contexts that change while rows come, and its planted faults."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from headgate_studies.testing.world.matched_contexts import FIRST_CLASS, Window, watching
from headgate_studies.testing.world.mutant import Mutant
from headgate_studies.testing.world.scenario import Action, Scenario
from headgate_studies.testing.world.small import commits, small_scenario, subscription

_DRIVER: Final = "driver-t0"


def changing_contexts(seed: int, random: Random) -> Scenario:
    """Contexts change, the catalog takes them over, and drivers die with a pin that is not committed yet."""
    kinds = ("context", "context", "context", "fold", "update_and_fold", "watch", "replan", "change", "move")
    others = ("kill_pinned", "kill_pinned", "replace_service", "pause_service", "cut_service")
    actions = [
        *commits(random, random.choice((0.1, 0.3)), random.choice((12, 60))),
        *(
            Action(random.uniform(0.3, 11.0), random.choice(kinds), random.choice(("s1", "s2")), "s1", 1.0)
            for _ in range(random.choice((12, 30, 60)))
        ),
    ]
    for _ in range(random.choice((2, 6))):
        kind = random.choice(others)
        place = "t0" if kind == "kill_pinned" else _DRIVER
        actions.append(Action(random.uniform(0.5, 11.0), kind, place, number=random.uniform(0.3, 3.0)))
    mine = [
        *(watching(subscription(f"u{number}", random.choice(("s1", "s2"))), Window.any(random)) for number in range(2)),
        watching(subscription("u2", "s2", start=random.choice(("now", "earliest"))), Window.any(random)),
        subscription("u3", "s1"),
    ]
    made = small_scenario(
        seed, mine, actions, delay_s=random.choice((0.02, 0.1, 0.3)), squeeze=random.choice((True, False))
    )
    ids = made.first.subscription_ids
    classes = {name: FIRST_CLASS + ids[name] if name != "u3" else 5 for name in ids}
    if made.squeeze:
        known = {name: replace(each, start="now") for name, each in made.first.deployment.subscriptions.items()}
        deployment = replace(made.first.deployment, subscriptions=known)
        return replace(made, first=replace(made.first, deployment=deployment, class_ids=classes))
    return replace(made, first=replace(made.first, class_ids=classes))


CONTEXT_FAMILIES: Final = (changing_contexts,)
CONTEXT_MUTANTS: Final = (
    Mutant(
        "contexts are read before the version that has taken them over",
        "protocol.commits",
        "        version = await newest_revision(port)"
        "  # first: what it has taken over of the contexts is then stored\n"
        "        update = await port.last(logs.root(stream), logs.context(stream))\n",
        "        update = await port.last(logs.root(stream), logs.context(stream))\n"
        "        version = await newest_revision(port)\n",
    ),
    Mutant(
        "a batch that is replayed is pinned anew",
        "protocol.commits",
        "            if await _kept(port, known.version):\n                return known\n",
        "",
    ),
    Mutant(
        "the update at the pinned place is left out",
        "matching.context",
        "bisect_right(self._positions, self._position), bisect_right(self._positions, position)\n        contexts",
        "bisect_left(self._positions, self._position), bisect_left(self._positions, position)\n        contexts",
    ),
    Mutant(
        "what was left out under one version stays left out under the next",
        "matching.context",
        "        if skipped or self._skipped:\n",
        "        if skipped:\n",
    ),
    Mutant(
        "a change that is left out counts for all of its update",
        "matching.context",
        "            if not skipped.has(self._positions[number], each & 0xFFFFFFFF):\n",
        "            if self._positions[number] not in skipped.places():\n",
    ),
)
