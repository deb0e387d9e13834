"""The planted faults of readers and of the service, as a table; see `headgate_studies.testing.world.faults`."""

# lines of the protocol as they are
from __future__ import annotations

from typing import Final

from headgate_studies.testing.world.mutant import Mutant

READER_MUTANTS: Final = (
    Mutant(
        "a reader that asks for what is late does not look into its inbox",
        "client.reader",
        "if since_s is not None and place == root:",
        "if False:",
    ),
    Mutant(
        "acknowledged before the consumer is done",
        "client.reader",
        "                    await self._hand_over(told)\n                    if not reading.confirming:\n",
        "                    reading.acks.note(reading.account.tally)\n"
        "                    await self._hand_over(told)\n                    if not reading.confirming:\n",
    ),
    Mutant(
        "a reader does not see a gap",
        "client.reader",
        "        if have is not None and block.after > have:\n",
        "        if False:\n",
    ),
    Mutant(
        "a reader hands over what it had",
        "client.reader",
        "yield self._reading.account.rest(block)",
        "yield block",
    ),
    Mutant(
        "a stay is left before its end",
        "client.stays",
        "elif later is not None and later[1] <= (self._account.coverage or 0):",
        "elif later is not None:",
    ),
    Mutant(
        "what was counted before a move is forgotten",
        "client.reader",
        "tally.stay, tally.inbox, tally.entered = stay.number, 0, counted_by(tally)",
        "tally.stay, tally.inbox = stay.number, 0",
    ),
    Mutant(
        "an unsure acknowledgement is not looked for",
        "client.acknowledging",
        "        if stored is None:\n",
        "        if stored is not None or stored is None:\n",
    ),
    Mutant(
        "an acknowledgement of one's own is taken for another's",
        "client.acknowledging",
        "if tally is not None and tally.reader != self._reader:",
        "if tally is not None:",
    ),
    Mutant(
        "the ledger is not asked where an unmoved subscription begins",
        "client.stays",
        "await self._as_booked() or (len",
        "(len",
    ),
    Mutant(
        "a kept position is not acknowledged",
        "client.acknowledging",
        "        if tally.mark > self._mark:\n",
        "        if False:\n",
    ),
    Mutant(
        "acknowledging without a fence",
        "client.acknowledging",
        "            self._sequence = await port.publish(subject, sent, expect=self._sequence)\n        except",
        "            self._sequence = await port.publish(subject, sent, expect=None)\n        except",
    ),
    Mutant(
        "the books leave out the past of a subscription",
        "service.books",
        "matched.add_history(identity, zip(past, counts, strict=True))",
        "matched.add_history(identity, zip(past[1:], counts[1:], strict=True))",
    ),
    Mutant(
        "versions that root logs name are deleted",
        "service.purging",
        "self._apart_from(covered([*roots, *others], old), old, stored)",
        "self._apart_from(covered(others, old), old, stored)",
    ),
    Mutant(
        "versions that others are changes of are deleted",
        "service.purging",
        "            while base is not None and base not in staying:",
        "            while base is not None and base not in staying and version < 0:",
    ),
    Mutant(
        "the books are stored without a fence",
        "service.keeper",
        "self._sequence = await self._port.publish(subject, matched.encode(), expect=self._sequence)",
        "self._sequence = await self._port.publish(subject, matched.encode(), expect=None)",
    ),
    Mutant(
        "the books are folded past the slowest subscriber",
        "service.keeper",
        "matched.fold(min(passed, default=matched.head))",
        "matched.fold(max(passed, default=matched.head))",
    ),
    Mutant(
        "versions that unread inboxes name are deleted",
        "service.named_versions",
        "if identity in names or not (read or port.wall_s - stored.time_s > ended_s):",
        "if identity not in names and not (read or port.wall_s - stored.time_s > ended_s):",
    ),
    Mutant(
        "the newest versions are deleted",
        "service.purging",
        "old = announced[: -self._rules.keep]",
        "old = announced",
    ),
    Mutant(
        "versions that a site log names are deleted",
        "service.named_versions",
        'mark = settled.get(rest[0], (-1, 0))[0] if kind == "in" else -1',
        "mark = 1 << 62",
    ),
    Mutant(
        "a reader begins with the first message that can be read",
        "client.reader",
        "                await self._stays.begin_as_booked()\n",
        "                pass\n",
    ),
    Mutant(
        "a block that the loop was not handed is acknowledged",
        "client.reader",
        "        elif self._reading.taken:\n",
        "        else:\n",
    ),
    Mutant(
        "a loop goes on behind a block that the one before it was not handed",
        "client.reader",
        "        if not self.taken:\n",
        "        if False:\n",
    ),
)
