"""Rows that are followed stage by stage, and the spans that a collector gets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.client.helpers import rows
from tests.live import running, small, until

from headgate.errors import HeadgateError
from headgate.fabric import cancel_all
from headgate.service.tracing.follow import RowFollower
from headgate.service.tracing.otlp import OtlpError, export, spans_document, traces_url
from headgate.service.tracing.row_trace import RowTrace, TraceStage, is_sampled, parse_share


@pytest.mark.nats
def test_sampled_rows_are_followed_through_every_stage(tmp_path: Path, nats_url: str) -> None:
    share = Fraction(1, 10)

    async def run() -> None:
        document = small(all={"site": "leaf"}, fast={"site": "mid", "where": "speed > 10"}, away={"site": "leaf"})
        async with running(document, tmp_path, nats_url) as live:
            follower = RowFollower(live.client, share, patience_s=3.0)
            found: list[RowTrace] = []

            async def collect() -> None:
                async for each in follower.run():
                    found.append(each)  # noqa: PERF401 - it never ends

            collecting = asyncio.create_task(collect())
            live.readers.start(["all", "fast"])
            batch, names = 0, {"all", "fast", "away"}

            async def followed() -> bool:
                return {each.subscription for each in found} == names

            while batch < 6 and not await followed():  # it hears of what is committed once it listens
                await live.commit("fleet", rows(batch * 50, batch * 50 + 50), batch)
                batch += 1
                with contextlib.suppress(TimeoutError):
                    await until(followed, 8)
            assert await followed()
            await cancel_all([collecting])
            assert all(is_sampled("fleet", each.seq, share) for each in found)
            speeds = rows(0, batch * 50).column("speed").to_pylist()
            assert all(speeds[each.seq - 1] > 10 for each in found if each.subscription == "fast")
            links: list[str] = []
            for each in found:
                stages = [stage.name for stage in each.stages]
                assert stages[0] == "read, match and commit"
                if each.subscription == "away":
                    assert each.fate == "waiting"
                    links += [stage for stage in stages if stage.startswith("link")]
                    assert stages[-1] == "inbox at leaf"
                else:
                    assert each.fate == "delivered"
                    assert stages[-1] == "acknowledged"
                ends = [stage.ends_ms for stage in each.stages]
                assert ends == sorted(ends), each
            assert {"link root to mid", "link mid to leaf"} == set(links)

    asyncio.run(run())


def test_spans_arrive_at_a_collector() -> None:
    got: list[dict[str, Any]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append({"path": self.path, **json.loads(self.rfile.read(int(self.headers["Content-Length"])))})
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    stages = (TraceStage("link a to b", "b", 1000.0, 1500.0), TraceStage("inbox at b", "b", 1500.0, 1400.0))
    traces = [RowTrace("fleet", 7, name, fate, stages) for name, fate in (("one", "delivered"), ("two", "reduced"))]
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        export(traces_url(f"http://127.0.0.1:{server.server_port}"), spans_document(traces, "d1"))
        server.shutdown()
        thread.join()
    (request,) = got
    assert request["path"] == "/v1/traces"
    spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert len({span["traceId"] for span in spans}) == 1  # one row is one trace
    assert len({span["spanId"] for span in spans}) == len(spans) == 6
    assert [len(span["traceId"]) for span in spans] == [32] * 6
    parents = {span["spanId"]: span.get("parentSpanId") for span in spans}
    assert [span["name"] for span in spans if parents[span["spanId"]] is None] == ["fleet to one", "fleet to two"]
    assert spans[1]["startTimeUnixNano"] == "1000000000"
    assert all(int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"]) for span in spans)
    assert [span["status"].get("code") for span in spans if "parentSpanId" not in span] == [None, 2]
    with pytest.raises(OtlpError, match="does not take spans"):
        export(traces_url(f"http://127.0.0.1:{server.server_port}"), spans_document(traces, "d1"))


@pytest.mark.parametrize("text", ["0", "2", "1/0", "some", "-1/3"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(HeadgateError, match="is no share of rows"):
        parse_share(text)
