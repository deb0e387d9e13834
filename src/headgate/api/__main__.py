"""The process of the API, started by the service: ``python -m headgate.api``, configured by the environment."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

from headgate.api.gateway import ServedPart
from headgate.api.mqtt.bridge import Bridge
from headgate.api.server import serving
from headgate.client import Client
from headgate.diagnostics import SERVICE, configure
from headgate.errors import HeadgateError
from headgate.fabric import cancel_all, keep_quarantine
from headgate.fabric.vitals import freeze_startup, keep_vitals
from headgate.service.access import read_token
from headgate.service.http_process import CONFIG, FaceConfig


async def run(config: FaceConfig) -> None:
    """Serve until told to stop."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    state_dir = Path(config.state_dir)
    with socket.socket(fileno=config.fd) as listening:
        listening.setblocking(False)
        async with await Client.connect(config.url, namespace=config.namespace, **config.nats_options) as client:
            aside = asyncio.create_task(keep_quarantine(client.fabric, "http"))
            part = ServedPart(limits=config.limits)
            async with serving(
                client, listening, read_token(state_dir), state_dir, config.tls, part, config.tls_ca
            ) as gateway:
                work = [aside, asyncio.create_task(keep_vitals(client.fabric, "http"), name="vitals")]
                if config.mqtt:
                    bridge = Bridge(gateway, config.url, state_dir / "nats")
                    work.append(asyncio.create_task(bridge.run(), name="MQTT"))
                freeze_startup()
                await stop.wait()
                await cancel_all(work)


def main() -> int:
    """Read the configuration and serve."""
    config = FaceConfig.read(os.environ.pop(CONFIG))
    configure(config.log_level, config.log_format)
    try:
        asyncio.run(run(config))
    except HeadgateError as error:
        SERVICE.error("the HTTP API has ended: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
