"""Dealing the rows of a group, against an oracle that only remembers who said what about which row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.gateway.dealing import Dealing
from headgate.gateway.ranks import rank_of
from headgate.model import GroupRule
from headgate.protocol.deals import Dealt, GivenUp, MemberCall
from headgate.wire.block import Block, Commit
from headgate.wire.frame import WireError
from headgate_studies.testing.world.dealt import GROUP_MUTANTS
from headgate_studies.testing.world.families import named_scenario
from headgate_studies.testing.world.mutants import planted
from headgate_studies.testing.world.simulation import Simulation

LEASE_S = 10.0
GROUP = 7


def block(after: int, upto: int, seqs: list[int]) -> Block:
    rows = pa.record_batch({"value": pa.array(seqs, pa.int64())})
    return Block("t", after, upto, (Commit(after, upto, 1, 0),), np.array(seqs, dtype=np.uint64), rows)


def call(member: str, *, session: str = "a", turn: int = 1, room: int = 4) -> MemberCall:
    return MemberCall(name="g", member=member, session=session, turn=turn, room=room)


def taken(dealing: Dealing, member: str, now_s: float, **more: int) -> list[int]:
    attendee = dealing.attend(call(member, **more), {}, now_s)
    dealing.deal(now_s)
    found = dealing.collect(attendee, more.get("turn", 1), now_s)
    return [int(seq) for part, indices in found for seq in part.seqs[indices]]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("add", "ask", "ask", "done", "done", "some", "leave", "again", "wait", "restart")),
        st.integers(0, 2),
        st.integers(0, 5),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_every_row_is_acknowledged_once_and_never_dealt_after_that(  # noqa: C901 # one case a step
    steps: list[tuple[str, int, int]],
) -> None:
    dealing = Dealing(LEASE_S)
    now_s, head, sessions, turns = 0.0, 0, [0, 0, 0], [0, 0, 0]
    held: dict[int, tuple[int, float]] = {}  # who was given a row, and until when it is its own
    mine: list[list[int]] = [[], [], []]
    done: set[int] = set()
    blocks: list[Block] = []
    settled = 0

    def ask(who: int) -> None:
        turns[who] += 1
        more = {"session": str(sessions[who]), "turn": turns[who], "room": 4}
        for seq in taken(dealing, f"m{who}", now_s, **more):  # type: ignore[arg-type] # the session is a text
            assert seq not in done, "a row was dealt again although it is done"
            other = held.get(seq)
            assert other is None or other[0] == who or other[1] <= now_s, "two members have a row"
            held[seq] = who, now_s + LEASE_S
            mine[who].append(seq)

    def free(who: int) -> None:
        for seq in [each for each, (holder, _) in held.items() if holder == who]:
            del held[seq]
        mine[who] = []

    def acknowledge(who: int, rows: list[int]) -> None:
        attendee = dealing.attend(call(f"m{who}", session=str(sessions[who])), {}, now_s)
        lost = dealing.acknowledge(attendee, rows)
        assert not set(lost) & {seq for seq in rows if held.get(seq, (None, 0.0)) == (who, now_s + LEASE_S)}
        done.update(set(rows) - set(lost))
        mine[who] = [seq for seq in mine[who] if seq not in rows]

    for kind, who, number in steps:
        match kind:
            case "add":
                rows = list(range(head + 1, head + 1 + number))
                blocks.append(block(head, head + number + 1, rows))
                head += number + 1
                dealing.add(blocks[-1], str(head).encode(), GROUP)
            case "ask":
                ask(who)
            case "done":
                acknowledge(who, list(mine[who]))
            case "some":
                acknowledge(who, mine[who][number:])
            case "leave":
                dealing.leave(f"m{who}")
                free(who)
            case "again":  # another run of the same member
                sessions[who] += 1
                free(who)
                ask(who)
            case "wait":
                now_s += number * 3.0
                dealing.expire(now_s)
                for seq in [each for each, (_, until_s) in held.items() if until_s <= now_s]:
                    del held[seq]
            case "restart":  # with nothing but what was stored
                beyond = dealing.beyond()
                dealing = Dealing(LEASE_S, beyond=beyond)
                held.clear()
                mine = [[], [], []]
                sessions = [each + 1 for each in sessions]
                for each in blocks:
                    if each.upto > settled:
                        dealing.add(each, str(each.upto).encode(), GROUP)
        tally = dealing.settle()
        if tally is not None:
            settled = int(tally)
            assert {int(seq) for each in blocks if each.upto <= settled for seq in each.seqs} <= done
    for each in range(3):
        dealing.leave(f"m{each}")
    held.clear()
    owed = {int(seq) for each in blocks for seq in each.seqs}
    for _ in range(len(owed) + 1):
        rest = taken(dealing, "last", now_s, turn=_ + 1)
        assert not set(rest) & done
        dealing.acknowledge(dealing.members["last"], rest)
        done.update(rest)
    assert done == owed
    assert dealing.settle() == (str(head).encode() if settled < head else None)
    assert dealing.empty
    assert dealing.beyond() == []


def test_rows_go_round_among_those_who_have_room() -> None:
    dealing = Dealing(LEASE_S)
    for name, room in (("a", 9), ("b", 9), ("c", 2)):
        dealing.attend(call(name, room=room), {}, 0.0)
    dealing.add(block(0, 9, list(range(1, 10))), b"9", GROUP)
    dealing.deal(0.0)
    found = {name: taken(dealing, name, 0.0, room=9 if name != "c" else 2) for name in "abc"}
    assert found == {"a": [1, 4, 7, 9], "b": [2, 5, 8], "c": [3, 6]}


def test_an_expression_over_values_of_members_picks_the_largest_and_its_equals_in_turn() -> None:
    rule = GroupRule("$zone = value % 2", context={"zone": 0})
    dealing = Dealing(LEASE_S, rank_of(rule))
    for name, zone in (("even", 0), ("odd", 1), ("odder", 1)):
        dealing.attend(call(name), {"zone": zone}, 0.0)
    dealing.add(block(0, 6, [1, 2, 3, 4, 5, 6]), b"6", GROUP)
    dealing.deal(0.0)
    held = {each.name: each.held for each in dealing.members.values()}
    assert held == {"even": 3, "odd": 2, "odder": 1}
    free = GroupRule("$free_slots", context={"free_slots": 0})
    dealing = Dealing(LEASE_S, rank_of(free))
    for name, slots in (("busy", 1), ("idle", 8)):
        dealing.attend(call(name, room=3), {"free_slots": slots}, 0.0)
    dealing.add(block(0, 4, [1, 2, 3, 4]), b"4", GROUP)
    dealing.deal(0.0)
    assert {each.name: each.held for each in dealing.members.values()} == {"busy": 1, "idle": 3}


def test_a_question_that_is_repeated_gets_the_same_rows() -> None:
    dealing = Dealing(LEASE_S)
    dealing.add(block(0, 3, [1, 2, 3]), b"3", GROUP)
    assert taken(dealing, "a", 0.0, room=2) == [1, 2]
    assert taken(dealing, "a", 1.0, room=2) == [1, 2]
    assert taken(dealing, "a", 1.0, room=3, turn=2) == [3]


def test_a_member_that_stalls_gets_nothing_until_it_asks_again() -> None:
    dealing = Dealing(LEASE_S)
    dealing.add(block(0, 2, [1, 2]), b"2", GROUP)
    assert taken(dealing, "a", 0.0) == [1, 2]
    dealing.members["a"].asking = 1  # it is heard of
    assert dealing.expire(LEASE_S)
    assert not dealing.deal(LEASE_S)
    assert dealing.acknowledge(dealing.members["a"], [1]) == []  # late, but nobody else has it
    assert taken(dealing, "b", LEASE_S) == [2]
    assert dealing.acknowledge(dealing.members["a"], [2]) == [2]


def test_questions_and_answers_survive_their_way() -> None:
    question = MemberCall(name="g", member="a", session="s", turn=3, done=[4, 9], context={"x": 1.5})
    assert MemberCall.decode(question.encode()) == question
    rows = pa.record_batch({"value": [1, 2]})
    answer = Dealt(3, np.array([4, 9], dtype=np.uint64), rows, lost=(5,), notes=(GivenUp(0, 9, {"overflow": 2}),))
    found = Dealt.decode(answer.encode())
    assert found.rows is not None
    assert found.rows.equals(rows)
    assert (found.seqs.tolist(), found.lost, found.notes) == ([4, 9], (5,), answer.notes)
    for wrong in (b"", b"{}", question.encode().replace(b'"turn":3', b'"turn":-1')):
        with pytest.raises(WireError):
            MemberCall.decode(wrong)
    with pytest.raises(WireError):
        Dealt.decode(question.encode())


@pytest.mark.parametrize("seed", [0, 2, 12])
def test_members_and_dealers_that_die_lose_nothing(seed: int) -> None:
    result = Simulation(named_scenario("group_of_members", seed)).run()
    assert result.violation is None
    assert result.events > 500


def test_the_simulator_sees_rows_that_are_dealt_again_after_they_were_acknowledged() -> None:
    with planted(GROUP_MUTANTS[0]):
        assert Simulation(named_scenario("group_of_members", 0)).run().violation is not None
