"""Makes a small state directory of this version as one file, for the test that later versions upgrade it.

The keys in it are those of that deployment only, which runs nowhere.

`python -m headgate_studies.testing.sample_state tests/data/states/format-1.tar.gz`
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import sys
import tempfile
from pathlib import Path
from typing import Final

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate.pipeline.worker import Address
from headgate.service.backup import make_backup
from headgate.service.runtime import open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

DOCUMENT: Final = """
sites: {root: {}, edge: {upload: 1 MB/s}}
streams:
  fleet: {root: root, source: {format: generator, kind: fleet, seed: 3, limit: 100}, key: vehicle, event_time: at}
subscriptions:
  all: {stream: fleet, site: edge}
  read: {stream: fleet, site: edge, where: speed > $least, context: {least: 10}, format: json}
"""
ROWS: Final = 60
READ: Final = 15
"""How many rows of `all` were acknowledged; the five after them were handed over and not."""
_STEP: Final = 5


async def fill(directory: Path) -> None:
    """Run a deployment in a directory: rows for two subscriptions, of which one was read in part, and a change."""
    settings = Settings(state_dir=directory, job=False)
    deployment = parse_deployment(DOCUMENT, "sample.yaml", GENERATOR_SCHEMAS)
    async with open_runtime(settings, deployment) as runtime, await Client.connect(state_dir=directory) as client:

        def commit() -> None:
            with DirectCommits(Address(runtime.url, Logs()), "sample") as direct:
                for batch in range(3):
                    part = ROWS // 3
                    direct.commit("fleet", generate("fleet", 3, batch * part, (batch + 1) * part), batch, 0.0)

        await asyncio.to_thread(commit)
        inbox, got = await client.subscribe("all", max_rows=_STEP), 0
        async for delivery in inbox:
            got += len(delivery)
            if got > READ:
                break
        await inbox.close()
        await client.control("change", changes=["site edge upload=2MB/s"])
        await client.control("user-add", name="ada", subscribe=["fleet"])


def main(file: Path) -> None:
    """Write the sample."""
    socket.gethostname = lambda: "sample"  # it is in the audit
    with tempfile.TemporaryDirectory(prefix="headgate-sample-", dir="/tmp") as place:
        asyncio.run(fill(Path(place) / "state"))
        make_backup(Path(place) / "state", Path(place) / "backup.tar")
        file.write_bytes(gzip.compress((Path(place) / "backup.tar").read_bytes(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
