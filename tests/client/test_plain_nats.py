"""The recipes for plain NATS clients in docs/clients.md, run as they stand there."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import nats
import pytest
from tests.client.helpers import rows
from tests.live import until
from tests.service.test_users import NOTES, world

from headgate.wire.message import json_text

pytestmark = pytest.mark.nats
PAGE = Path(__file__).parents[2] / "docs" / "clients.md"


def recipes() -> dict[str, Any]:
    """What the examples for plain NATS define."""
    blocks = re.findall(r"```python title=\"plain NATS[^\"]*\"\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    found: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), found)
    return found


def test_an_operator_reads_an_inbox_and_a_user_publishes_only(tmp_path: Path) -> None:
    recipe = recipes()

    async def run() -> None:
        async with world(tmp_path) as here:
            url, creds = here.server.listens_at, str(tmp_path / "state" / "nats" / "operator.creds")
            wanted = {"stream": "fleet", "site": "leaf", "where": "speed > 10", "format": "json", "expires": "1 h"}
            await here.operator.control("subscribe", name="plain", subscription=wanted)
            line = (await here.operator.control("status"))["subscriptions"]["plain"]
            await here.commit(0, 100)
            source = [{"_seq": number, **row} for number, row in enumerate(rows(0, 200).to_pylist(), 1)]
            expected = [json.loads(json_text(row)) for row in source if row["speed"] > 10]
            got: list[dict[str, Any]] = []
            for batch in range(2):  # a reader that comes back goes on where it was
                async with asyncio.timeout(60):
                    reading = recipe["read"](url, creds, line["site"], line["id"], "billing")
                    async for row in reading:
                        if not got or row["_seq"] > got[-1]["_seq"]:
                            got.append(row)
                        if got[-1] == [each for each in expected if each["_seq"] <= 100 * (batch + 1)][-1]:
                            break
                    await reading.aclose()
                if not batch:
                    await here.commit(100, 200)
            assert got == expected
            status = (await here.operator.control("status"))["subscriptions"]["plain"]
            assert (status["delivered"], status["in_flight"]) == (0, len(expected))

            mine = await here.credentials("pia", publish=["notes"], subscribe=["fleet"])
            assert await recipe["publish"](url, mine, "pia", "notes", {"text": "hello"}) == 1
            stored = await here.operator.fabric.read(here.operator.fabric.logs.input("notes"), "hg.in.notes", 0)
            assert [json.loads(each.data) for each in stored] == [{"text": "hello"}]
            refused: list[str] = []

            async def noted(error: Exception) -> None:
                refused.append(str(error))

            client = await nats.connect(url, user_credentials=mine, inbox_prefix=b"_INBOX_pia", error_cb=noted)
            asked = await client.request("hg.as.pia.mine", b"{}", timeout=5)
            assert "error" not in json.loads(asked.data)
            stream = client.jetstream(timeout=0.5)
            with pytest.raises((TimeoutError, nats.errors.Error)):
                await stream.pull_subscribe("hg.inbox.leaf.1", durable="mine", stream="HG_INBOX_leaf")

            async def told() -> bool:
                return any("permissions violation" in each.lower() for each in refused)

            await until(told)
            await client.close()

    assert NOTES["schema"] == {"text": "string"}
    asyncio.run(run())
