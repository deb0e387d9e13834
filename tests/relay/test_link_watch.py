"""Links that nobody uses are asked seldom, and both ends' figures of a link are put together."""

from __future__ import annotations

from headgate.fabric.tcp_figures import ConnectionFigures
from headgate.model import Deployment, Site
from headgate.protocol.reports import LinksReport, LinkUp, PeerFigures, RelayReport
from headgate.relay.link_watch import IDLE_S, ProbedLink, ResentShare
from headgate.service.link_status import links_now


def test_an_idle_link_is_asked_once_in_ten_seconds_and_a_busy_one_never():
    busy, idle, asked = ProbedLink(), ProbedLink(), []
    for second in range(1, 61):
        now = float(second)
        assert not busy.due(second, now)
        if idle.due(7, now):
            asked.append(now)
            idle.answered(None if len(asked) == 2 else 0.04, now)
    assert asked == [1 + IDLE_S, 1 + 2 * IDLE_S, 1 + 3 * IDLE_S, 1 + 4 * IDLE_S, 1 + 5 * IDLE_S]
    assert (idle.probes, idle.unanswered, idle.round_trip_s) == (5, 1, 0.04)


def test_the_share_that_was_sent_again_is_of_the_last_minute():
    share = ResentShare()
    for look in range(30):
        lost = 500 if look < 10 else 0
        sent = 1000 * (look + 1)
        found = share.note({"a:1": ConnectionFigures(0.05, 0.04, sent, lost * min(look, 10))})
    assert found["a:1"].resent == 0.0
    assert share.note({"b:1": ConnectionFigures(0.05, 0.04, 10, 0)}).keys() == {"b:1"}, "a connection has ended"


def test_status_finds_a_link_at_its_sender_by_the_address_of_its_receiver():
    deployment = Deployment({}, {"a": Site("a"), "b": Site("b", nats="nats://10.0.0.2:4222"), "c": Site("c")})
    report = RelayReport(site="a", time_ms=0, link_bytes={"t:b": 10, "t:c": 10}, link_messages={"t:b": 1, "t:c": 1})
    watched = {
        "a": LinksReport(
            site="a",
            time_ms=0,
            below={"10.0.0.2:9": PeerFigures(round_trip_s=0.2, least_round_trip_s=0.1, resent=0.01)},
        ),
        "b": LinksReport(
            site="b", time_ms=0, above={"": LinkUp(address="10.0.0.2:9", round_trip_s=0.3, idle_s=12.0, probes=1)}
        ),
    }
    found = links_now(deployment, {"a": report}, watched)
    shown = {key: found["a->b"][key] for key in ("round_trip_s", "resent", "idle_s", "probes", "unanswered")}
    assert shown == {"round_trip_s": 0.2, "resent": 0.01, "idle_s": 12.0, "probes": 1, "unanswered": 0}
    assert found["a->c"]["round_trip_s"] is None
    behind = links_now(deployment, {"a": report}, {"b": watched["b"]})["a->b"]
    assert (behind["round_trip_s"], behind["resent"]) == (0.3, None), "addresses may be translated in between"
