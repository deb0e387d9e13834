"""The memory of a gateway answers as the log would, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.gateway.memory import SiteMemory
from headgate.protocol.port import Stored

SUBJECTS = ("a", "b", "c")
EACH = 410  # bytes that a message of ten takes in memory


def stored(sequence: int, subject: str = "a") -> Stored:
    return Stored(sequence, subject, b"x" * 10)


def sequences(found: list[Stored] | None) -> list[int] | None:
    return None if found is None else [each.sequence for each in found]


def begun(seen: int = 0, max_bytes: int = 10 * EACH, watched: tuple[str, ...] = ("a",)) -> SiteMemory:
    memory = SiteMemory(max_bytes)
    memory.begin(seen)
    for subject in watched:
        memory.watch(subject)
    return memory


def test_what_came_before_is_the_logs_to_tell() -> None:
    memory = begun(7)
    assert memory.read("a", 6, 9) is None
    assert memory.read("a", 7, 9) == []
    assert memory.take([stored(8), stored(9, "b"), stored(10)]) == ["a"]
    assert sequences(memory.read("a", 7, 9)) == [8, 10]
    assert sequences(memory.read("a", 8, 9)) == [10]
    assert sequences(memory.read("a", 7, 1)) == [8]
    assert memory.read("b", 9, 9) is None  # nobody watches it
    assert memory.seen == 10


def test_an_inbox_that_was_asked_about_is_known_from_there_on() -> None:
    memory = begun(7)
    memory.learn("a", 3, memory.mark)
    assert memory.read("a", 3, 9) == []
    assert memory.read("a", 2, 9) is None


def test_an_answer_from_before_memory_began_teaches_nothing() -> None:
    memory = begun(7)
    mark = memory.mark
    memory.begin(9)
    memory.learn("a", 3, mark)
    assert memory.read("a", 3, 9) is None


def test_an_answer_teaches_nothing_where_something_was_let_go_since() -> None:
    memory = begun(7, max_bytes=2 * EACH)
    mark = memory.mark
    memory.take([stored(8), stored(9), stored(10)])
    memory.learn("a", 3, mark)
    assert memory.read("a", 3, 9) is None
    assert memory.read("a", 7, 9) is None
    assert sequences(memory.read("a", 8, 9)) == [9, 10]


@pytest.mark.parametrize(("count", "kept"), [(9, 9), (10, 10), (11, 10), (400, 10)])
def test_it_holds_so_many_bytes(count: int, kept: int) -> None:
    memory = begun()
    memory.take([stored(number) for number in range(1, count + 1)])
    assert memory.bytes == kept * EACH
    assert len(memory.read("a", count - kept, 1000) or ()) == kept
    assert memory.read("a", count - kept - 1, 1000) is None  # it knows nothing of what came before


def test_who_comes_back_to_an_inbox_begins_anew() -> None:
    memory = begun()
    memory.take([stored(1)])
    memory.leave("a")
    memory.take([stored(2)])
    memory.watch("a")
    assert memory.read("a", 1, 9) is None
    assert memory.read("a", 2, 9) == []
    memory.take([stored(number) for number in range(3, 30)])  # lets go of the first one, which is not this inbox's
    assert sequences(memory.read("a", 19, 99)) == list(range(20, 30))


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(SUBJECTS)),
        st.tuples(st.sampled_from(["take", "restart"]), st.integers(1, 4)),
        st.tuples(st.sampled_from(["watch", "leave", "ask"]), st.sampled_from(SUBJECTS)),
        st.tuples(st.sampled_from(["answer", "read"]), st.sampled_from(SUBJECTS), st.integers(0, 30)),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(ACTIONS)
def test_whatever_happens_it_answers_as_the_log_does(actions: list[tuple[object, ...]]) -> None:
    log: list[Stored] = []
    memory = begun(max_bytes=4 * EACH, watched=())
    watched: set[str] = set()
    asked: dict[str, tuple[int, tuple[int, int]]] = {}
    for action in actions:
        match action:
            case ("append", str(subject)):
                log.append(stored(len(log) + 1, subject))
            case ("take", int(count)):
                memory.take(log[memory.seen or 0 :][:count])
            case ("restart", int(_)):
                memory.begin(len(log))
            case ("watch", str(subject)) if subject not in watched:
                memory.watch(subject)
                watched.add(subject)
            case ("leave", str(subject)) if subject in watched:
                memory.leave(subject)
                watched.remove(subject)
            case ("ask", str(subject)):
                last = max((each.sequence for each in log if each.subject == subject), default=0)
                asked[subject] = last, memory.mark  # the log has nothing after this
            case ("answer", str(subject), int(_)) if subject in asked:
                memory.learn(subject, *asked.pop(subject))
            case ("read", str(subject), int(after)):
                found = sequences(memory.read(subject, after, 3))
                told = [each.sequence for each in log[: memory.seen] if each.subject == subject]
                assert found is None or found == [each for each in told if each > after][:3]
    assert memory.bytes <= 4 * EACH
