"""The planted faults, as a table: name, module, text and its replacement. See `headgate_studies.testing.world.mutants`."""

# ruff: noqa: E501 # lines of the protocol as they are
from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault: in a module of `headgate`, some text of a function (found exactly once) and its replacement."""

    name: str
    module: str
    before: str
    after: str


MUTANTS: Final = (
    Mutant(
        "coverage one row too far after a message",
        "relay.output",
        "        self.coverage = upto\n        self.held = None\n",
        "        self.coverage = upto + 1\n        self.held = None\n",
    ),
    Mutant(
        "a cut block keeps the row before it",
        "wire.block",
        'first = int(np.searchsorted(self.seqs, np.uint64(after), side="right"))',
        'first = int(np.searchsorted(self.seqs, np.uint64(after), side="left"))',
    ),
    Mutant(
        "a cut block loses its last row",
        "wire.block",
        'stop = int(np.searchsorted(self.seqs, np.uint64(upto), side="right"))\n        commits',
        'stop = int(np.searchsorted(self.seqs, np.uint64(upto), side="left"))\n        commits',
    ),
    Mutant(
        "both halves of a block declare",
        "wire.block",
        "kept = replace(self._slice(0, stop), declared={}, digests={}, basis={}, begun={})",
        "kept = self._slice(0, stop)",
    ),
    Mutant(
        "joining blocks forgets what the first ones declare",
        "wire.block",
        "declared = merge_declared(declared, block.declared)",
        "declared = dict(block.declared)",
    ),
    Mutant(
        "an output takes covered rows again",
        "relay.output",
        "block if reach is None else block.since(reach)",
        "block",
    ),
    Mutant(
        "a message partly stored is sent again as a whole",
        "relay.waiting",
        "if self.entries and self.entries[0].block.after < upto:",
        "if False:",
    ),
    Mutant(
        "what was sent stays queued",
        "relay.waiting",
        "while self.entries and self.entries[0].block.upto <= upto:",
        "while self.entries and self.entries[0].block.upto < upto:",
    ),
    Mutant(
        "rows behind a declaration in one message",
        "relay.output",
        "if taken[-1].block.declared or each.block.version != first.block.version or rows > max_rows:",
        "if each.block.version != first.block.version or rows > max_rows:",
    ),
    Mutant(
        "two versions in one message",
        "relay.output",
        "if taken[-1].block.declared or each.block.version != first.block.version or rows > max_rows:",
        "if taken[-1].block.declared or rows > max_rows:",
    ),
    Mutant(
        "a split decision is taken for whole",
        "relay.output",
        "        return not split\n",
        "        return True\n",
    ),
    Mutant(
        "decided blocks are cut",
        "relay.output",
        "if any(each.decided for each in taken):",
        "if False:",
    ),
    Mutant(
        "oversize rows dropped without declaring",
        "relay.output",
        "[self.reducer.emptied(piece, OVERSIZE) for each in sent for piece in for_decisions(each, _MOST_ROWS)]",
        "[replace(each, block=replace(each.block, seqs=each.block.seqs[:0], rows=each.block.rows.slice(0, 0), classes=each.block.classes and type(each.block.classes).empty(0))) for each in sent]",
    ),
    Mutant(
        "packed away what was at the front",
        "relay.output",
        "self._refill([*self.queue, *self._drop_ancient(kept)])",
        "self._refill([*self._drop_ancient(kept)])",
    ),
    Mutant(
        "a pack changes what is on its way",
        "relay.waiting",
        "        if upto is None:\n            return [], list(self.entries)\n",
        "        if True:\n            return [], list(self.entries)\n",
    ),
    Mutant(
        "declared again behind what is on its way",
        "relay.waiting",
        "if last is not None and alike and last.block.upto != leaving and",
        "if last is not None and alike and",
    ),
    Mutant(
        "a refusal counts as stored",
        "relay.sending",
        "            output.refused()\n",
        "            output.published(output.sequence)\n",
    ),
    Mutant(
        "publishing without a fence",
        "relay.sending",
        "expect=send.expect)",
        "expect=None)",
    ),
    Mutant(
        "after a failure the tail is not read",
        "relay.sending",
        "            state.resume(key, output, *await state.tail(key))\n",
        "            output.busy = None\n",
    ),
    Mutant(
        "a lost answer counts as stored",
        "relay.sending",
        "            state.resume(key, output, *await state.tail(key))\n",
        "            output.published(output.sequence)\n",
    ),
    Mutant(
        "a gap is not noticed",
        "relay.core",
        "        if source.coverage is not None and block.after > source.coverage:\n",
        "        if False:\n",
    ),
    Mutant(
        "held blocks that join exactly stay held",
        "relay.core",
        "while source.held and source.held[0][0].after <= (source.coverage or 0):",
        "while source.held and source.held[0][0].after < (source.coverage or 0):",
    ),
    Mutant(
        "a held block is dropped when its turn comes",
        "relay.core",
        "            if block.upto > (source.coverage or 0):\n                self._continue(source, block, routes, now)\n",
        "            source.coverage = max(block.upto, source.coverage or 0)\n",
    ),
    Mutant(
        "settled as far as the fastest output",
        "relay.core",
        "        return min([*known, source.coverage]) if",
        "        return max(known) if",
    ),
    Mutant(
        "outputs that sent nothing are settled",
        "relay.core",
        "        if not known or len(known) < len(marks):\n",
        "        if not known:\n",
    ),
    Mutant(
        "purged before it is settled",
        "relay.upkeep",
        "        done = [each for each in taken if each.upto <= settled]\n        gone = len(done) - _kept_for_repair(done, logs.site(state.site).max_bytes // 4)\n",
        "        done = taken\n        gone = len(done) - 1\n",
    ),
    Mutant(
        "decisions of a stalled output are not recorded",
        "relay.upkeep",
        "                await self._port.publish(subject, self._port.codec.encode(block), replace=True)\n",
        "                pass\n",
    ),
    Mutant(
        "outputs forgotten behind a gap",
        "relay.upkeep",
        " and state.core.gap(key.stream) is None\n            ",
        "\n            ",
    ),
    Mutant(
        "an inbox is purged one message early",
        "relay.inboxes",
        "read = min(tally.place(key.stay), output.sequence)",
        "read = min(tally.place(key.stay) + 2, output.sequence + 1)",
    ),
    Mutant(
        "an inbox is purged to its end while it is read",
        "relay.inboxes",
        "if tally.stay > key.stay and not output.queue and",
        "if tally.stay >= key.stay and not output.queue and",
    ),
    Mutant(
        "expiry ignores the reader's mark",
        "relay.inboxes",
        "tally if tally.stay == key.stay else Tally(tally.subscription))",
        "Tally(tally.subscription))",
    ),
    Mutant(
        "expiry does not say what it counted on",
        "relay.expiry",
        "basis={mine: before},",
        "basis={},",
    ),
    Mutant(
        "expiry replaces what came meanwhile",
        "relay.inboxes",
        "if gone is None or gone.sequence != output.sequence or output.busy is not None:",
        "if gone is None:",
    ),
    Mutant(
        "expired rows are not declared",
        "relay.expiry",
        "{receiver: {EXPIRED: len(block.seqs)}} if len(block.seqs) else {}",
        "{}",
    ),
    Mutant(
        "queued rows do not expire with the inbox",
        "relay.inboxes",
        "        output.give_up_all(lambda block: expire_rows(block, target.id))\n",
        "        output.give_up_all(lambda block: block.take(block.seqs[:0].astype('int64')))\n",
    ),
    Mutant(
        "acknowledged before the consumer is done",
        "client.reader",
        "                    await self._port.hand_over(told)\n                    if not reading.confirming:\n",
        "                    reading.acks.note(reading.account.tally)\n"
        "                    await self._port.hand_over(told)\n                    if not reading.confirming:\n",
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
        "rows that are gone at the root are not counted",
        "relay.root",
        "commit = replace(commit, whole=_matched(manifest, routes))",
        "pass",
    ),
    Mutant(
        "what a damaged commit matched is forgotten at its sound end",
        "wire.ledger",
        "begun.whole = commit.whole.get(mine, begun.whole)",
        "begun.whole = commit.whole.get(mine)",
    ),
    Mutant(
        "what was given up of a damaged commit expires again",
        "wire.ledger",
        "                begun.counted += sum(block.declared.get(mine, {}).values())\n",
        "                pass\n",
    ),
    Mutant(
        "a damaged commit is left out where blocks are joined",
        "wire.block",
        "(np.diff(ends, prepend=0) > 0) | [bool(commit.whole) for commit in commits]",
        "np.diff(ends, prepend=0) > 0",
    ),
    Mutant(
        "the beginning of a commit is not acknowledged",
        "wire.ledger",
        "return write_record(_TALLY, self)",
        "return write_record(_TALLY, replace(self, begun=None))",
    ),
    Mutant(
        "declarations of two commits are mixed up",
        "relay.waiting",
        "    return first.of_whole_commits and second.of_whole_commits\n",
        "    return True\n",
    ),
    Mutant(
        "expiry forgets what it counted of an open commit",
        "relay.expiry",
        "begun={mine: begun.counted},",
        "begun={mine: 0},",
    ),
    Mutant(
        "declarations counted twice by a slow reader",
        "wire.ledger",
        "        if have is None or block.after >= have or mine not in block.basis:\n",
        "        if True:\n",
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
        "acknowledging without a fence",
        "client.acknowledging",
        "            self._sequence = await port.publish(subject, sent, expect=self._sequence)\n        except",
        "            self._sequence = await port.publish(subject, sent, expect=None)\n        except",
    ),
    Mutant(
        "the first block after a start is where a stream begins",
        "relay.gaps",
        "self._state.core.begin(stream, self._had.get(stream, 0))",
        "pass",
    ),
    Mutant(
        "gaps are never mended",
        "relay.gaps",
        "        if stream not in self._mending:\n",
        "        if False:\n",
    ),
    Mutant(
        "owed rows are passed over",
        "relay.gaps",
        "state.core.cover(gap.stream, owed.begins, state.port.now)",
        "state.core.cover(gap.stream, gap.upto, state.port.now)",
    ),
    Mutant(
        "the root forgets the first commit owed",
        "relay.owed",
        "begins=max(manifest.after, after), ends",
        "begins=min(manifest.upto, upto), ends",
    ),
    Mutant(
        "routed by the newest version",
        "relay.intake",
        "            routes = await state.tables.routes(version, state.site, stream)\n",
        "            routes = await state.tables.routes((await state.tables.newest()).revision, state.site, stream)\n",
    ),
    Mutant(
        "an answer leaves out what lies between",
        "relay.repair",
        "if not (end > reached and start <= reached < upto):",
        "if not (end > reached and reached < upto):",
    ),
    Mutant(
        "what others serve is answered as nothing",
        "relay.repair",
        "if await self._unserved(block.version, request):",
        "if True:",
    ),
    Mutant(
        "a commit that is partly settled is not read again",
        "relay.intake",
        "if manifest.upto > done and manifest.evaluated:",
        "if manifest.after >= done and manifest.evaluated:",
    ),
    Mutant(
        "history again after a move",
        "relay.intake",
        "if mine.stay and (await state.insist(",
        "if False and (await state.insist(",
    ),
    Mutant(
        "an output restored without its coverage",
        "relay.state",
        "output = self.core.restore(key, coverage, sequence)",
        "output = self.core.restore(key, None, sequence)",
    ),
    Mutant(
        "an output restored without its decisions",
        "relay.state",
        "            if held is None:\n",
        "            if True:\n",
    ),
    Mutant(
        "a recorded decision is taken back behind another relay's message",
        "relay.output",
        "if self.coverage is not None and block.after < self.coverage:",
        "if self.coverage is not None and block.upto <= self.coverage:",
    ),
    Mutant(
        "resumed from the beginning of the last message",
        "relay.state",
        "return self.port.codec.coverage(stored.data)[1], stored.sequence",
        "return self.port.codec.coverage(stored.data)[0], stored.sequence",
    ),
    Mutant(
        "an inbox that is being read counts as read out",
        "relay.state",
        "(await read_tally(self.port, key.subscription)).stay > key.stay",
        "(await read_tally(self.port, key.subscription)).stay >= key.stay",
    ),
    Mutant(
        "a second pack forgets what the first declared",
        "relay.leaving",
        "declared=merge_declared(each.block.declared, declared[index])",
        "declared=declared[index]",
    ),
    Mutant(
        "only the last receiver hears what was given up",
        "relay.leaving",
        "declared[index] = merge_declared(declared[index], {receiver: reasons})",
        "declared[index] = {receiver: reasons}",
    ),
    Mutant(
        "declarations are not passed down a link",
        "relay.split",
        "return {receiver: reasons for receiver, reasons in declared.items() if receiver in below}",
        "return {}",
    ),
    Mutant(
        "declarations do not reach an inbox",
        "relay.split",
        "yield receiver, replace(mine, declared={receiver.id: reasons}) if reasons else mine",
        "yield receiver, mine",
    ),
    Mutant(
        "rows numbered one too low at the root",
        "relay.root",
        "part.positions + np.uint64(base + 1)",
        "part.positions + np.uint64(base)",
    ),
    Mutant(
        "purged parts are declared at the root only",
        "relay.root",
        "everyone = routes.receivers",
        "everyone = routes.local",
    ),
    Mutant(
        "no past after a move before the first commit",
        "relay.intake",
        "if mine.start != EARLIEST or reached >= upto:",
        "if mine.start != EARLIEST or mine.stay or reached >= upto:",
    ),
    Mutant(
        "history is not gone on with after a restart",
        "relay.intake",
        "if mine.start != EARLIEST or reached >= upto:",
        "if mine.start != EARLIEST or output.reach is not None or upto == 0:",
    ),
    Mutant(
        "limits of a link's receivers as whole numbers",
        "relay.bounds",
        "np.array([group.policy.max_rows or np.inf for group in self.groups], dtype=np.float64)",
        "np.array([group.policy.max_rows or np.inf for group in self.groups])",
    ),
    Mutant(
        "a pack goes on after another relay has sent some of it",
        "relay.output",
        "split = split or (self.packing and coverage > self._packed_after)",
        "split = split or False",
    ),
    Mutant(
        "a manifest is appended without a fence",
        "protocol.commits",
        "port.codec.encode_manifest(manifest), expect=stored.sequence if stored else 0",
        "port.codec.encode_manifest(manifest), expect=None",
    ),
    Mutant(
        "a batch that was committed is committed again",
        "protocol.commits",
        "if last is not None and batch.committed(last):",
        "if last is not None and batch.committed(last) and last.batch < 0:",
    ),
    Mutant(
        "the books leave out the past of a subscription",
        "service.books",
        "matched.add_history(identity, served[identity], past)",
        "matched.add_history(identity, served[identity], past[1:])",
    ),
    Mutant(
        "versions that root logs name are deleted",
        "service.purging",
        "named = covered([*roots, *others], old)",
        "named = covered(others, old)",
    ),
    Mutant(
        "a version is pinned that was deleted",
        "protocol.commits",
        "    if await newest_revision(port) == version:\n",
        "    if True:\n",
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
        "service.named",
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
        "service.named",
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
        "nothing wakes the sending after an expiry",
        "relay.inboxes",
        "            state.waiting.set()  # nothing was sent meanwhile\n",
        "            pass\n",
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
    Mutant(
        "the parent of an earlier plan is not asked",
        "relay.gaps",
        "if turn % 3 == 2 or not (gap.shown or at_root):",
        "if not (gap.shown or at_root):",
    ),
    Mutant(
        "a parent does not look for what its child is owed",
        "relay.gaps",
        "            state.core.expect(stream, request.upto)\n",
        "            pass\n",
    ),
)
