"""A stream whose rows have numbers keeps its root; one without rows may begin anywhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.client.helpers import rows
from tests.live import running, small

from headgate.service.roots import MovedRootError

pytestmark = pytest.mark.nats


def _at(root: str) -> dict[str, Any]:
    document = small(50, all={"site": "leaf"})
    document["streams"]["fleet"]["root"] = root
    document["plan"] = {"fleet": {site: root for site in ("root", "mid", "leaf") if site != root}}
    return document


def test_a_root_that_holds_rows_does_not_move_and_an_empty_one_does(tmp_path: Path, nats_url: str) -> None:
    async def run() -> None:
        async with running(_at("root"), tmp_path, nats_url, namespace="moving") as live:
            assert live.runtime.catalog.snapshot().deployment.streams["fleet"].root == "root"
        async with running(_at("mid"), tmp_path, nats_url, namespace="moving") as live:
            assert live.runtime.catalog.snapshot().deployment.streams["fleet"].root == "mid"
            live.readers.start(["all"])
            await live.commit("fleet", rows(0, 10), 0)
            await live.settle()
        with pytest.raises(MovedRootError, match=r"'fleet' has its root at 'mid' .* puts its root at 'root'"):
            async with running(_at("root"), tmp_path, nats_url, namespace="moving"):
                pass
        async with running(_at("mid"), tmp_path, nats_url, namespace="moving") as live:
            live.readers.start(["all"])
            await live.commit("fleet", rows(10, 20), 1)
            await live.settle()
            assert live.seqs("all") == list(range(11, 21))

    asyncio.run(run())
