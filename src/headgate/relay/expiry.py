"""The end of a detached subscriber's grace period: what lies unread in its inbox is given up, declared expired."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headgate.wire.block import EXPIRED, Block, concat, merge_declared
from headgate.wire.ledger import DELIVERED, Account, Begun, Tally, counted_in_stay


def expire_rows(block: Block, receiver: int) -> Block:
    """The same coverage with every row declared expired."""
    gone = {receiver: {EXPIRED: len(block.seqs)}} if len(block.seqs) else {}
    emptied = block.take(np.zeros(0, dtype=np.int64))
    return replace(emptied, declared=merge_declared(block.declared, gone))


def expire_messages(messages: Sequence[Block], tally: Tally) -> Block | None:
    """Unread messages of an inbox as one that says what they held, None where they hold no rows.

    They are counted as their reader would, from its last acknowledgement on. What it says takes their place in one
    step; a reader who has some of them in hand takes off it what it has counted since (`Account.rest`).
    """
    account, mine = Account(copy.deepcopy(tally)), tally.subscription
    blocks = []
    for message in messages:
        if account.coverage is None or message.upto > account.coverage:
            blocks.append(account.rest(message))
            if account.coverage is not None and blocks[-1].after > account.coverage:
                return None  # what lies between was damaged: its reader asks for it again
            account.add(blocks[-1], 0, 0)
    if not any(len(block.seqs) for block in blocks):
        return None
    before, declared = counted_in_stay(tally), counted_in_stay(account.tally)
    declared[EXPIRED] += declared.pop(DELIVERED) - before[DELIVERED]
    declared = {reason: count - before.get(reason, 0) for reason, count in declared.items()}
    # Columns may have changed between them; without rows they no longer matter.
    schema, nothing = blocks[-1].rows.slice(0, 0), blocks[-1].seqs[:0]
    told = [tuple(replace(commit, whole={}) for commit in block.meant_for((mine,))) for block in blocks]
    empty = [
        replace(block, commits=commits, seqs=nothing, rows=schema, classes=None)
        for block, commits in zip(blocks, told, strict=True)
    ]
    one = concat([replace(block, declared={}) for block in empty])
    begun = account.tally.begun or Begun(one.upto)
    last = replace(one.commits[-1], whole={} if begun.whole is None else {mine: begun.whole})
    return replace(
        one,
        commits=(*one.commits[:-1], last),
        declared={mine: {reason: count for reason, count in declared.items() if count}},
        basis={mine: before},
        begun={mine: begun.counted},
    )
