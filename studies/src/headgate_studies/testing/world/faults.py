"""The planted faults of relays and of what they send, as a table: name, module, text and its replacement.

See `headgate_studies.testing.world.mutants`.
"""

# ruff: noqa: E501 # lines of the protocol as they are
from __future__ import annotations

from typing import Final

from headgate_studies.testing.world.damaged_values import VALUE_MUTANTS
from headgate_studies.testing.world.dealt import GROUP_MUTANTS
from headgate_studies.testing.world.doubled import DOUBLED_MUTANTS
from headgate_studies.testing.world.gateway_faults import GATEWAY_MUTANTS
from headgate_studies.testing.world.ledger_faults import LEDGER_MUTANTS
from headgate_studies.testing.world.mutant import Mutant
from headgate_studies.testing.world.narrowed import BANDWIDTH_MUTANTS
from headgate_studies.testing.world.published import PUBLISHED_MUTANTS
from headgate_studies.testing.world.put_back_faults import PUT_BACK_MUTANTS
from headgate_studies.testing.world.reader_faults import READER_MUTANTS
from headgate_studies.testing.world.root_faults import ROOT_MUTANTS
from headgate_studies.testing.world.sharing_faults import SHARING_MUTANTS
from headgate_studies.testing.world.standby_faults import STANDBY_MUTANTS
from headgate_studies.testing.world.thinned import THINNED_MUTANTS
from headgate_studies.testing.world.watched import CONTEXT_MUTANTS

RELAY_MUTANTS: Final = (
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
        "relay.queued_blocks",
        "if self.entries and self.entries[0].block.after < upto:",
        "if False:",
    ),
    Mutant(
        "what was sent stays queued",
        "relay.queued_blocks",
        "while self.entries and self.entries[0].block.upto <= upto:",
        "while self.entries and self.entries[0].block.upto < upto:",
    ),
    Mutant(
        "rows behind a declaration in one message",
        "relay.output",
        "if parts or last.upto != each.block.after or",
        "if last.upto != each.block.after or",
    ),
    Mutant(
        "two versions in one message",
        "relay.output",
        "last.upto != each.block.after or last.version != each.block.version or rows > max_rows:",
        "last.upto != each.block.after or rows > max_rows:",
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
        "relay.queued_blocks",
        "        if upto is None:\n            return [], list(self.entries)\n",
        "        if True:\n            return [], list(self.entries)\n",
    ),
    Mutant(
        "declared again behind what is on its way",
        "relay.queued_blocks",
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
        "while source.held and not self._bursting() and source.held[0][0].after <= (source.coverage or 0):",
        "while source.held and not self._bursting() and source.held[0][0].after < (source.coverage or 0):",
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
        "else min(known)\n",
        "else max(known)\n",
    ),
    Mutant(
        "outputs that sent nothing are settled",
        "relay.core",
        "return None if not known or None in marks else",
        "return None if not known else",
    ),
    Mutant(
        "purged before it is settled",
        "relay.upkeep",
        "        done = [each for each in taken if each.upto <= settled]\n        gone = len(done) - _kept_for_repair(done, logs.site(state.site).max_bytes // 4)\n",
        "        done = taken\n        gone = len(done) - 1\n",
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
        "read = 0 if place is None else min(place, output.sequence)",
        "read = 0 if place is None else min(place + 2, output.sequence + 1)",
    ),
    Mutant(
        "an inbox is purged to its end while it is read",
        "relay.inboxes",
        "return None if tally.stay > key.stay else tally.place(key.stay)",
        "return None if tally.stay >= key.stay else tally.place(key.stay)",
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
        "relay.queued_blocks",
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
        "a site that cannot answer is taken for one that has nothing",
        "relay.asking",
        '    if answer == b"":\n',
        '    if answer == b"never":\n',
    ),
    Mutant(
        "a message that is too large is blamed on its first block",
        "relay.output",
        "        joined = message.upto > self.queue[0].block.upto\n",
        "        joined = False\n",
    ),
    Mutant(
        "messages that are still in the log are forgotten with those that are purged",
        "relay.core",
        "found.held[:-1] = [each for each in found.held[:-1] if each[0].upto in but]",
        "found.held[:-1] = []",
    ),
    Mutant(
        "blocks behind a gap are routed before queues are packed",
        "relay.core",
        "source.held and not self._bursting() and source",
        "source.held and source",
    ),
    Mutant(
        "making room purges what is not passed on",
        "relay.upkeep",
        "        owed = {each.subject for each in state.taken[stream] if settled < each.upto <= reached}\n",
        "        owed = set()\n",
    ),
    Mutant(
        "rows for the full inbox of an ended subscription wait for ever",
        "relay.upkeep",
        "if not output.queue or (output.stalled and await self._left(key, output.queue[-1].block.upto)):",
        "if not output.queue:",
    ),
    Mutant(
        "rows wait for ever for a site that has them from another parent",
        "relay.upkeep",
        "            return bool(report and same and",
        "            return False and bool(report and same and",
    ),
    Mutant(
        "the past is not kept within the limits of the queue",
        "relay.backfill",
        "                await state.pack_overfull()\n                reached = block.upto\n",
        "                reached = block.upto\n",
    ),
    Mutant(
        "decisions that an older copy of the log lacks are counted on",
        "relay.state",
        "if key.stream in settled and reached < min(upto, settled[key.stream][0]):",
        "if False:",
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
        "relay.entitlement",
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
        "if manifest.upto > done and manifest.evaluated and stream in state.roots:",
        "if manifest.after >= done and manifest.evaluated and stream in state.roots:",
    ),
    Mutant(
        "history again after a move",
        "relay.backfill",
        "if mine.stay and (await state.insist(",
        "if False and (await state.insist(",
    ),
    Mutant(
        "an output restored without its coverage",
        "relay.restoring",
        "output = state.core.restore(key, coverage, sequence)",
        "output = state.core.restore(key, None, sequence)",
    ),
    Mutant(
        "an output restored without its decisions",
        "relay.restoring",
        "    if held is None:\n",
        "    if True:\n",
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
        "(await read_tally(self.port, subscription)).stay <= stay",
        "(await read_tally(self.port, subscription)).stay < stay",
    ),
    Mutant(
        "a second pack forgets what the first declared",
        "relay.pack_result",
        "declared=merge_declared(each.block.declared, declared[index])",
        "declared=declared[index]",
    ),
    Mutant(
        "only the last receiver hears what was given up",
        "relay.pack_result",
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
        "        if reasons:\n            mine = replace(mine, declared={told: reasons})\n",
        "",
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
        "relay.backfill",
        "if reached >= upto:",
        "if mine.stay or reached >= upto:",
    ),
    Mutant(
        "history is not gone on with after a restart",
        "relay.backfill",
        "if reached >= upto:",
        "if output.reach is not None or upto == 0:",
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
        "a version is pinned that was deleted",
        "protocol.commits",
        "    if await newest_revision(port) == version:\n",
        "    if True:\n",
    ),
    Mutant(
        "nothing wakes the sending after an expiry",
        "relay.inboxes",
        "            state.waiting.set()  # nothing was sent meanwhile\n",
        "            pass\n",
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
        '            self.expect(stream, "", request.upto)\n',
        "            pass\n",
    ),
    Mutant(
        "an output that gets nothing more keeps what comes for the others",
        "relay.output",
        "        return bool(self.queue) or self.busy is not None or self.packing\n",
        "        return self.reach is not None\n",
    ),
    Mutant(
        "what waits for a reader that has gone on elsewhere stays",
        "relay.upkeep",
        "return ended or await self._state.read_out(key)",
        "return ended",
    ),
    Mutant(
        "no past before a first block that was asked for",
        "relay.gaps",
        "        await backfill(state, routes, block.after)",
        "        pass",
    ),
    Mutant(
        "a damaged message that was counted is sent again",
        "relay.state",
        "in tuple(self.readers(key)):  # others may come while this one is asked about\n            tally = await self.insist(",
        "in ():\n            tally = await self.insist(",
    ),
)
MUTANTS: Final = (
    *RELAY_MUTANTS,
    *READER_MUTANTS,
    *ROOT_MUTANTS,
    *STANDBY_MUTANTS,
    *GATEWAY_MUTANTS,
    *SHARING_MUTANTS,
    *GROUP_MUTANTS,
    *DOUBLED_MUTANTS,
    *CONTEXT_MUTANTS,
    *LEDGER_MUTANTS,
    *BANDWIDTH_MUTANTS,
    *VALUE_MUTANTS,
    *THINNED_MUTANTS,
    *PUBLISHED_MUTANTS,
    *PUT_BACK_MUTANTS,
)
