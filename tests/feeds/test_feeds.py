"""Feeds from a real loopback server and from files: only new items, once, politely, and no crash on rubbish."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.cli.groups import Program
from headgate.feeds import (
    Feed,
    FeedRequest,
    FeedsError,
    Fetched,
    Politeness,
    Poller,
    Spool,
    fetch,
    parse_feed,
    run_feeds,
)
from headgate.feeds import poller as poller_module
from headgate.feeds.items import SCHEMA
from headgate.feeds.listing import parse_feeds, read_feeds
from headgate_studies.workloads.feeds import FeedServer, MadeFeed

QUICK = Politeness(interval_s=0.0, host_gap_s=0.0, timeout_s=60.0)


def _rows(spool):
    lines = [line for path in sorted(spool.items.glob("items-*.json")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


def _dead(spool):
    path = spool.dead / "dead.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def server():
    feeds = {
        "news": MadeFeed("rss", [("n1", "One", "politics"), ("n2", "Two", "weather")]),
        "blog": MadeFeed("atom", [("b1", "Erste", "code")]),
        "rubbish": MadeFeed("broken"),
        "down": MadeFeed(status=503, headers={"Retry-After": "7200"}),
        "gone": MadeFeed(status=410),
    }
    with FeedServer(feeds) as made:
        yield made


def test_only_new_items_are_published_and_unchanged_feeds_cost_nothing(server, tmp_path):
    poller, spool = Poller(parse_feeds(server.listing()), QUICK), Spool(tmp_path)
    assert run_feeds(poller, spool, rounds=1) == 3
    assert {(row["feed"], row["title"]) for row in _rows(spool)} == {
        ("news", "One"),
        ("news", "Two"),
        ("blog", "Erste"),
    }
    assert [row["title"] for row in _rows(spool) if row["feed"] == "news"] == ["One", "Two"]
    server.add("news", ("n3", "Three", "weather"))
    for feed in ("down", "rubbish", "gone"):
        poller.feeds.pop(feed)
        poller.states.pop(feed)
    before = poller.counts.requests
    for _ in range(2):
        polled = [
            poller.take(request, fetch(request.feed.url, request.etag, request.modified), 0.0)
            for request in poller.due(1e12)
        ]
        spool.publish(poller, polled, 0.0)
    assert poller.counts.requests == before + 4
    assert [row["title"] for row in _rows(spool)][3:] == ["Three"]
    assert server.answers[304] == 3
    assert set(_rows(spool)[0]) == set(SCHEMA.names)


def test_malformed_feeds_and_failures_are_dead_letters_with_reasons(server, tmp_path):
    poller, spool = Poller(parse_feeds(server.listing()), QUICK), Spool(tmp_path)
    run_feeds(poller, spool, rounds=1)
    reasons = {row["feed"]: row["reason"] for row in _dead(spool)}
    assert set(reasons) == {"rubbish", "down", "gone"}
    assert "not a feed" in reasons["rubbish"]
    assert "503" in reasons["down"]
    assert poller.states["gone"].gone
    assert all(request.feed.name != "gone" for request in poller.due(1e15))


def test_a_server_that_says_when_to_come_back_is_obeyed():
    poller = Poller([Feed("a", "http://x/a")], Politeness(interval_s=60, host_gap_s=0))
    [request] = poller.due(0.0)
    poller.take(request, Fetched(503, retry_after_s=7200.0, error="HTTP 503"), 0.0)
    assert poller.due(7199.0) == []
    assert len(poller.due(7200.0)) == 1


def test_failures_wait_longer_and_longer_and_success_resets():
    poller = Poller([Feed("a", "http://x/a")], Politeness(interval_s=10, host_gap_s=0, patience_s=100))
    now, waits = 0.0, []
    for _ in range(6):
        [request] = poller.due(now)
        poller.take(request, Fetched(0, error="refused"), now)
        waits.append(poller.states["a"].due_s - now)
        now = poller.states["a"].due_s
    assert waits == [20, 40, 80, 100, 100, 100]
    [request] = poller.due(now)
    poller.take(request, Fetched(304), now)
    assert poller.states["a"].due_s == now + 10


def test_one_host_is_asked_one_at_a_time():
    poller = Poller([Feed(name, f"http://host/{name}") for name in "abc"], Politeness(interval_s=100, host_gap_s=2))
    assert [len(poller.due(now)) for now in (0.0, 1.0, 2.0, 3.0, 4.0, 6.0)] == [1, 0, 1, 0, 1, 0]
    assert poller.next_due() == 100.0


@pytest.mark.parametrize("moment", ["before the file", "after the file"])
def test_a_crash_at_any_moment_repeats_nothing_and_loses_nothing(server, tmp_path, monkeypatch, moment):
    feeds = [feed for feed in parse_feeds(server.listing()) if feed.name in ("news", "blog")]
    poller, spool = Poller(feeds, QUICK), Spool(tmp_path)
    original = Spool._write

    def crash(self, items, letters, now_s):
        if moment == "after the file":
            original(self, items, letters, now_s)
        raise KeyboardInterrupt

    monkeypatch.setattr(Spool, "_write", crash)
    with pytest.raises(KeyboardInterrupt):
        run_feeds(poller, spool, rounds=1)
    monkeypatch.undo()
    poller, spool = Poller(feeds, QUICK), Spool(tmp_path)
    spool.restore(poller)
    for state in poller.states.values():
        state.etag = state.modified = None
    run_feeds(poller, spool, rounds=1)
    assert sorted(row["key"] for row in _rows(spool)) == sorted({row["key"] for row in _rows(spool)})
    assert len(_rows(spool)) == 3


def test_a_crash_before_the_answer_is_safe_does_not_skip_it(server, tmp_path):
    """Validators are saved with the items: an answer that was not published is asked for again in full."""
    feeds = [feed for feed in parse_feeds(server.listing()) if feed.name == "news"]
    poller = Poller(feeds, QUICK)
    [request] = poller.due(0.0)
    poller.take(request, fetch(request.feed.url), 0.0)  # and then the process dies
    again, spool = Poller(feeds, QUICK), Spool(tmp_path)
    spool.restore(again)
    assert run_feeds(again, spool, rounds=1) == 2


def test_files_and_their_changes(tmp_path):
    path = tmp_path / "feed.xml"
    path.write_bytes(MadeFeed("rss", [("1", "One", "x")]).body())
    first = fetch(path.as_uri())
    assert first.status == 200
    assert fetch(path.as_uri(), None, first.modified).status == 304
    assert fetch((tmp_path / "none.xml").as_uri()).error is not None
    assert fetch(path.as_uri(), max_bytes=10).error == "more than 10 bytes"


def test_compressed_and_oversized_answers():
    body = gzip.compress(b"x" * 100_000)

    class Packed(MadeFeed):
        def body(self):
            return body

    with FeedServer({"a": Packed(headers={"Content-Encoding": "gzip"})}) as made:
        assert fetch(f"{made.url}/a").body == b"x" * 100_000
        assert "when unpacked" in (fetch(f"{made.url}/a", max_bytes=50_000).error or "")
        made.feeds["a"].headers = {"Content-Encoding": "gzip"}
        body = body[:-10]
        assert fetch(f"{made.url}/a").error
    assert fetch(f"{made.url}/a", timeout_s=0.5).status == 0


def test_a_redirect_to_a_file_is_refused(tmp_path):
    with FeedServer({"a": MadeFeed(status=302, headers={"Location": (tmp_path / "secret").as_uri()})}) as made:
        assert fetch(f"{made.url}/a").status in (0, 302)
        assert fetch(f"{made.url}/a").body == b""


def test_the_memory_of_keys_is_bounded(monkeypatch):
    monkeypatch.setattr(poller_module, "REMEMBERED", 5)
    poller = Poller([Feed("a", "file:///x")], QUICK)
    for start in range(0, 20, 4):
        made = MadeFeed("rss", [(str(i), "t", "c") for i in range(start, start + 4)])
        polled = poller.take(FeedRequest(poller.feeds["a"], None, None), Fetched(200, made.body()), 0.0)
        poller.accept(polled)
    assert len(poller.states["a"].keys) == 5


@settings(max_examples=30, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=300), st.text(max_size=200).map(lambda text: f"<rss><channel><item>{text}</item>".encode())
    )
)
def test_nothing_in_a_feed_can_raise(body):
    parsed = parse_feed("x", body)
    assert parsed.is_feed or parsed.dead
    assert all(each.key for each in (*parsed.items, *parsed.dead))


def _rss(*entries: str) -> bytes:
    return f"<rss version='2.0'><channel>{''.join(f'<item>{each}</item>' for each in entries)}</channel></rss>".encode()


def test_an_item_with_only_a_description_is_an_item():
    """RSS asks for a title or a description, and nothing else."""
    parsed = parse_feed("x", _rss("<description>storm warning</description>", "<title>t</title>", "<author>a</author>"))
    assert [(item.title, item.summary) for item in parsed.items] == [("", "storm warning"), ("t", "")]
    assert [letter.reason for letter in parsed.dead] == ["an entry has no id, link, title or text"]
    body = b"<feed xmlns='http://www.w3.org/2005/Atom'><entry><content>the whole text</content></entry></feed>"
    assert [item.summary for item in parse_feed("x", body).items] == ["the whole text"]


def test_an_entry_that_cannot_be_read_is_no_failed_request():
    """The server answered as it should: validators are kept, the wait is the usual one, the bad entry counts once."""
    poller = Poller([Feed("a", "http://x/a")], Politeness(interval_s=60, host_gap_s=0))
    for turn in range(3):
        [request] = poller.due(60.0 * turn)
        assert request.modified == (None if turn == 0 else "yesterday")
        polled = poller.take(request, Fetched(200, _rss("<author>nobody</author>"), None, "yesterday"), 60.0 * turn)
        assert len(polled.dead) == (1 if turn == 0 else 0)
        poller.accept(polled)
    assert (poller.counts.requests, poller.counts.failures, poller.counts.dead) == (3, 0, 1)
    assert poller.states["a"].due_s == 180.0


def test_lists_of_feeds(tmp_path):
    assert parse_feeds("# all\nnews http://a/b # main\n\nfile:///x\n") == (
        Feed("news", "http://a/b"),
        Feed("file:///x", "file:///x"),
    )
    for text, message in (
        ("a ftp://x", "not a feed"),
        ("a b http://x", "not a feed"),
        ("a http://x\na http://y", "two feeds"),
    ):
        with pytest.raises(FeedsError, match=message):
            parse_feeds(text)
    with pytest.raises(FeedsError, match="cannot read"):
        read_feeds(Path(tmp_path / "missing"))


def test_a_broken_state_is_refused(tmp_path):
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(FeedsError, match="broken"):
        Spool(tmp_path).restore(Poller([]))


def test_the_command(server, tmp_path):
    from typer.testing import CliRunner

    from headgate.cli.feeds import feeds

    app = Program()
    app.command()(feeds)
    listing = tmp_path / "feeds.txt"
    listing.write_text(server.listing())
    found = CliRunner().invoke(
        app, [str(listing), str(tmp_path / "out"), "--interval", "1 ms", "--host-gap", "0 s", "--rounds", "1"]
    )
    assert found.exit_code == 0, found.output
    figures = json.loads(found.stdout.splitlines()[-1])
    assert figures["items"] == 3
    assert figures["dead_letters"] >= 3
    lines = found.stderr.splitlines()
    assert "news: 2 new items" in lines
    assert "blog: 1 new item" in lines
    assert "down: HTTP 503 Service Unavailable; asked again in 2 h" in lines
    assert {line.split(":")[0] for line in lines} == set(server.feeds), "every line says which feed it is about"
