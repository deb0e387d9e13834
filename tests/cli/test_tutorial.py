"""The tutorial: its file, its data and what it says is printed, on the suite's Spark and NATS."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.live import running
from typer.testing import CliRunner

from headgate.cli.check import check
from headgate.cli.groups import Program
from headgate.cli.tail import _print_row
from headgate.service.dead_letters import read_dead_letters

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


def _blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", TEXT, flags=re.DOTALL)


def _printed(command: str) -> list[str]:
    """What the tutorial shows below a command."""
    for block in _blocks("console"):
        for part in block.split("$ headgate ")[1:]:
            first, *lines = part.splitlines()
            if first == command:
                return lines
    raise LookupError(command)


def test_the_example_is_the_tutorials_file_and_check_says_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text,) = _blocks("yaml")
    assert (ROOT / "examples" / "harbour" / "headgate.yaml").read_text(encoding="utf-8") == text
    monkeypatch.chdir(tmp_path)
    Path("headgate.yaml").write_text(text, encoding="utf-8")

    application = Program()
    application.command()(check)
    result = CliRunner().invoke(application, ["headgate.yaml"])
    assert result.output.splitlines() == _printed("check headgate.yaml")


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.nats
def test_every_step_gives_what_the_tutorial_shows(
    tmp_path: Path, nats_url: str, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    first, second, third = _blocks("json")
    text = _blocks("yaml")[0].replace("path: incoming", f"path: {json.dumps(str(incoming))}")
    state = tmp_path / "state"

    async def run() -> None:
        async with running(text, state, nats_url, spark, namespace="harbour") as live:
            (incoming / "first.json").write_text(first)
            await live.run_queries()
            assert await tail(live, "everything", 2) == _printed("tail everything -n 2")
            assert await read_dead_letters(live.client.fabric, "readings") == _printed("dead readings")
            (incoming / "second.json").write_text(second)
            await live.run_queries()
            assert await tail(live, "high-water", 3, as_json=True) == _printed("tail high-water --json -n 3")
            shown = {line.split()[0]: [int(each) for each in line.split()[1:7]] for line in _printed("ledger")[2:5]}
            lines = (await live.runtime.status())["subscriptions"]
            terms = ("matched", "delivered", "reduced", "expired", "in_flight", "difference")
            assert {name: [each[term] for term in terms] for name, each in lines.items()} == shown
            assert await live.client.set_context("gale", limit=20) > 0
            assert list(json.loads(_printed("context gale limit=20")[0])) == ["place"]
        async with running(text, state, nats_url, spark, namespace="harbour") as live:
            (incoming / "third.json").write_text(third)
            await live.run_queries()
            assert await tail(live, "gale", 3, as_json=True) == _printed("tail gale --json -n 3")

    async def tail(live: Any, name: str, count: int, *, as_json: bool = False) -> list[str]:
        capsys.readouterr()
        inbox = await live.client.subscribe(name, max_rows=1)
        async with asyncio.timeout(60):
            async for delivery in inbox:
                for seq, row in zip(delivery.seqs.tolist(), delivery.to_pylist(), strict=True):
                    _print_row(seq, row, as_json)
                    count -= 1
                if not count:
                    inbox.done()
                    break
        await inbox.close()
        return capsys.readouterr().out.splitlines()

    asyncio.run(run())
    written = [state, *state.rglob("*")]
    assert any("offsets" in path.parts for path in written)  # what Spark writes, which does not ask for a umask
    assert [path for path in written if not path.is_symlink() and path.stat().st_mode & 0o077] == []
