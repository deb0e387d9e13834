"""Time series: rings of samples, oldest first, with holes where a thing was not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.api.helpers import Api, api_test
from tests.client.helpers import rows
from tests.live import small, until

from headgate.api import series
from headgate.api.problems import ApiError
from headgate.api.series import Rates, Series


def status(time_ms: int, **delivered: int) -> dict[str, Any]:
    entries = {name: {"delivered": count, "level": None} for name, count in delivered.items()}
    return {"time_ms": time_ms, "streams": {}, "sites": {}, "links": {}, "subscriptions": entries, "planner": {}}


def test_samples_are_kept_in_order_and_forgotten() -> None:
    kept = Series(3)
    for number in range(1, 6):
        kept.add(status(number * 1000, a=number, **({"b": 7} if number == 1 else {})))
        kept.add(status(number * 1000, a=99))  # the same reading once more
    assert kept.of("subscriptions", "a") == {"times_ms": [3000, 4000, 5000], "series": {"delivered": [3, 4, 5]}}
    assert kept.of("subscriptions", "a", since_ms=4000)["series"] == {"delivered": [5]}
    kept.add(status(6000))
    assert kept.of("subscriptions", "a")["series"] == {"delivered": [4, 5, None]}
    kept.add(status(7000))
    with pytest.raises(ApiError, match="nothing was sampled of 'b'"):
        kept.of("subscriptions", "b")


@pytest.mark.parametrize(("count", "shown"), [(1, True), (2, True), (3, False)])
def test_many_subscriptions_have_none(count: int, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST", 2)
    kept = Series(3)
    kept.add(status(1, **{f"s{number}": number for number in range(count)}))
    assert ("subscriptions", "s0", "delivered") in kept._values or not shown
    assert shown or not kept._values


def test_of_many_subscriptions_those_asked_about_have_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST", 2)
    kept = Series(3)
    many = {f"s{number}": number for number in range(3)}
    for name in ("s0", "s1", "s2"):  # of three that were asked about, the last two
        assert not kept.has("subscriptions", name)
    kept.add(status(1, **many))
    assert {name for _, name, _ in kept._values} == {"s1", "s2"}
    assert kept.of("subscriptions", "s2")["series"] == {"delivered": [2]}


def test_qualities_and_delays_are_sampled() -> None:
    kept = Series(3)
    found = status(1, a=5)
    found["subscriptions"]["a"]["commit_delay_ms"] = {"mean": 20.0, "p50": 10.0}
    found["planner"] = {"quality": 0.9, "subscriptions": {"a": {"quality": 0.7}}}
    kept.add(found)
    assert kept.of("subscriptions", "a")["series"] == {"delivered": [5], "quality": [0.7], "commit_delay_ms": [20.0]}
    assert kept.of("planner", "_")["series"] == {"quality": [0.9]}


def test_rates_are_those_of_the_last_seconds() -> None:
    rates = Rates(span_ms=3000)

    def read(time_ms: int, sent: int) -> None:
        rates.add({"time_ms": time_ms, "streams": {}, "sites": {}, "links": {"a->b": {"bytes": sent, "reduced": None}}})

    read(1000, 500)
    assert rates.of("links", "a->b", "bytes") is None
    read(2000, 1500)
    assert rates.of("links", "a->b", "bytes") == 1000
    for second in range(3, 9):
        read(second * 1000, 1500)
    assert rates.of("links", "a->b", "bytes") == 0
    assert rates.of("links", "a->b", "reduced") is None
    read(9000, 7)  # the relay has begun anew
    assert rates.of("links", "a->b", "bytes") is None


@pytest.mark.nats
def test_the_api_samples_what_it_serves(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        await api.live.commit("fleet", rows(0, 90), 0)
        path = "/api/measurements/series"

        async def sampled() -> bool:
            api.gateway.series.add(await api.live.runtime.status())
            found = await api.http.get(path, params={"of": "streams", "name": "fleet"})
            return bool(found.json()["series"]["rows_in"][-1] == 90)

        await until(sampled)
        await api.json("GET", path, 404, params={"of": "sites", "name": "nowhere"})
        await api.json("PUT", "/api/subscriptions/new", json={"stream": "fleet", "site": "leaf"})
        found = await api.json("GET", path, params={"of": "subscriptions", "name": "new"})
        assert found == {"times_ms": [], "series": {}}
        await api.json("GET", path, 422, params={"of": "things", "name": "fleet"})

    api_test(tmp_path, nats_url, small(all={"site": "leaf"}), work)
