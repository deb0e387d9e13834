"""The planted faults of inboxes that several subscriptions share (see `headgate_studies.testing.world.mutants`)."""

from __future__ import annotations

from typing import Final

from headgate_studies.testing.world.mutant import Mutant

SHARING_MUTANTS: Final = (
    Mutant(
        "a shared inbox is purged by who has read most of it",
        "relay.inboxes",
        "        return min(places, default=None)\n",
        "        return max(places, default=None)\n",
    ),
    Mutant(
        "who has read nothing of a shared inbox does not count",
        "relay.inboxes",
        "                    places.append(tally.place(stay) or await self._before(key, (subscription, stay)))\n",
        "                    places.append(tally.place(stay) or 1 << 40)\n",
    ),
    Mutant(
        "a member that joins takes rows of before it came",
        "client.stays",
        "found = [each for each in came if await self._is_mine(each, stay)]",
        "found = list(came)",
    ),
    Mutant(
        "what was given up in a shared inbox is told to its owner only",
        "client.reader",
        "                whole = renamed(whole, found.stay.inbox_of(self._reading.id)[0], self._reading.id)\n",
        "",
    ),
    Mutant(
        "a shared inbox is held by who joins for messages of before it came",
        "relay.inboxes",
        "                place = stored.sequence\n        state.members[key][reader] = place\n",
        "                break\n        state.members[key][reader] = 0\n",
    ),
    Mutant(
        "who joins a shared inbox is taken to come after all that it holds, also after a restart",
        "relay.state",
        "0 if output is None or output.sequence == output.began else output.sequence",
        "0 if output is None else output.sequence",
    ),
    Mutant(
        "who has ended goes on to hold a shared inbox",
        "relay.inboxes",
        "each[0] in self._known or met.get(each[0], 0) > revision",
        "each[0] in self._known or met.get(each[0], 0) > 0",
    ),
)
