"""The judge of `headgate bench feeds` sees what is missing, what came twice and what nobody asked for."""

from __future__ import annotations

from headgate.feeds.items import key_of
from headgate_studies.bench.feeds import TOPICS, _judge, _wanted
from headgate_studies.workloads.feeds import MadeFeed


def test_every_item_is_held_against_what_the_feeds_published():
    made = {
        "a": MadeFeed("rss", [("1", "one", "sport"), ("2", "two", "code")]),
        "b": MadeFeed("atom", [("1", "one", "sport")]),
        "bad": MadeFeed("broken"),
    }
    one, two, other = key_of("a", "1"), key_of("a", "2"), key_of("b", "1")
    wanted = {"x": ("feed", "a"), "y": ("topic", "sport")}
    right = _judge(made, wanted, {"x": [two, one], "y": [one, other]})
    assert right == {"items": 3, "expected": 4, "delivered": 4, "missing": 0, "twice": 0, "unasked": 0}
    wrong = _judge(made, wanted, {"x": [one, one, other], "y": [other]})
    assert wrong == {"items": 3, "expected": 4, "delivered": 4, "missing": 2, "twice": 1, "unasked": 1}


def test_subscribers_want_feeds_and_every_topic():
    import numpy as np

    wanted = _wanted(np.random.default_rng(1), 300, 100)
    assert len(wanted) == 100
    assert {which for kind, which in wanted.values() if kind == "topic"} == set(TOPICS)
    assert sum(kind == "feed" for kind, _ in wanted.values()) == 90
