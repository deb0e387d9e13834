"""The programs that `make chaos` runs and kills: the service without a Spark job, and one site's relay."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.fabric.connecting import join
from headgate.fabric.rolekeys import site_credentials
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate.relay.node import RelayNode
from headgate.service.runtime import open_runtime
from headgate.service.settings import Settings
from headgate.wire.identity import DEPLOYMENT_KEY
from headgate.wire.logs import Logs


async def run_home(state: Path, text: str) -> None:
    """The service with its embedded server."""
    deployment = parse_deployment(text, "chaos.yaml", GENERATOR_SCHEMAS)
    settings = Settings(state_dir=state, job=False, relays=False, disk_reserve_bytes=0)
    async with open_runtime(settings, deployment) as runtime:
        await runtime.failure


async def run_relay(state: Path, site: str, port: int) -> None:
    """A relay with the rights of its site, over a connection that others can cut."""
    credentials = site_credentials(state / "nats", "hg", site)
    async with Client(await join(f"nats://127.0.0.1:{port}", Logs("hg"), credentials)) as client:
        client.fabric.marks = {DEPLOYMENT_KEY: (await client.snapshot()).identity.deployment}
        await RelayNode(client.fabric, site).run()


def main() -> None:
    """`home STATE FILE` or `relay STATE SITE PORT`."""
    kind, state, *rest = sys.argv[1:]
    if kind == "home":
        asyncio.run(run_home(Path(state), Path(rest[0]).read_text()))
    else:
        asyncio.run(run_relay(Path(state), rest[0], int(rest[1])))


if __name__ == "__main__":
    main()
