"""A small share of the calls that `headgate_studies.testing.http_calls` makes: no made-up call breaks the API."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.client.helpers import rows
from tests.live import running

from headgate_studies.testing.http_calls import DOCUMENT, serve_and_call


@pytest.mark.nats
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_no_made_up_call_breaks_it(tmp_path: Path, nats_url: str) -> None:
    async def run() -> None:
        async with running(DOCUMENT, tmp_path, nats_url) as live:
            await live.commit("fleet", rows(0, 300), 0)
            counts = await serve_and_call(nats_url, live.address.logs.namespace, tmp_path, 36, 1, part=6)
            assert len({label for label, _ in counts}) >= 5
            assert any(status >= 400 for _, status in counts)

    asyncio.run(run())
