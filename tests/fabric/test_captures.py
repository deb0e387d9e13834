"""What is recorded between hosts, of devices and of gateways: rows where TLS is off, and none where it is on."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import sys
from asyncio.subprocess import PIPE
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import yaml
from tests.fabric.test_encryption import MARKER, Certificates, Recorder
from tests.live import until

from headgate.api.gateway import Gateway
from headgate.api.mqtt.bridge import Bridge
from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.fabric import cancel_all
from headgate.fabric.connecting import join
from headgate.fabric.listening import Listening
from headgate.fabric.place import choose_port
from headgate.fabric.rolekeys import site_credentials
from headgate.pipeline.worker import Address
from headgate.relay.hosted import open_host
from headgate.relay.node import RelayNode
from headgate.service.access import read_token
from headgate.service.runtime import open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

pytestmark = [pytest.mark.nats, pytest.mark.long]
ROWS = [MARKER]  # one alone: several would be compressed
NOTES = {"root": "root", "source": {"format": "nats", "payload": "json"}, "schema": {"text": "string"}}


def _document(subscribed: str, **sites: Any) -> dict[str, Any]:
    names = list(sites)
    return {
        "sites": sites,
        "streams": {"notes": NOTES},
        "plan": {"notes": dict(zip(names[1:], names, strict=False))},
        "subscriptions": {"all": {"stream": "notes", "site": subscribed}},
    }


def _commit(url: str, batch: int = 0) -> None:
    with DirectCommits(Address(url, Logs()), "test") as direct:
        direct.commit("notes", pa.record_batch({"text": ROWS}), batch, 0.0)


@pytest.mark.parametrize("encrypted", [False, True])
def test_the_link_between_two_hosts_shows_no_row_where_tls_is_on(tmp_path: Path, encrypted: bool) -> None:
    """`leaf` reads its link's log at the server of `mid`, whose address in the deployment file is the recorder's."""
    certificates, recorder, ports = Certificates(tmp_path / "tls"), Recorder(), (choose_port(), choose_port())

    async def run() -> None:
        async with AsyncExitStack() as stack:
            port = await stack.enter_async_context(recorder.before(ports[0]))
            addresses = [f"{'tls' if encrypted else 'nats'}://127.0.0.1:{each}" for each in (port, ports[1])]
            document = _document("leaf", root={}, mid={"nats": addresses[0]}, leaf={"nats": addresses[1]})
            deployment = parse_deployment(yaml.safe_dump(document), "test.yaml")
            settings = Settings(state_dir=tmp_path / "state", job=False)
            runtime = await stack.enter_async_context(open_runtime(settings, deployment))
            client = await stack.enter_async_context(await Client.connect(state_dir=tmp_path / "state"))
            assert runtime.server is not None
            files = {"certificate": certificates.cert, "key": certificates.key} if encrypted else {}
            for site, own in zip(("mid", "leaf"), ports, strict=True):
                credentials = site_credentials(runtime.server.directory, "hg", site)
                home = await stack.enter_async_context(await join(runtime.server.url, Logs(), credentials))
                snapshot = runtime.control.contexts.snapshot
                listening = Listening(port=own, **files)
                fabric = await stack.enter_async_context(open_host(home, site, tmp_path / site, listening, snapshot))
                stack.push_async_callback(cancel_all, [asyncio.create_task(RelayNode(fabric, site).run())])
            await asyncio.to_thread(_commit, runtime.server.url)
            inbox = await client.subscribe("all")
            assert (await anext(aiter(inbox))).rows["text"].to_pylist() == ROWS
            await inbox.close()

    asyncio.run(run())
    assert len(recorder.seen) > 1_000
    assert (MARKER.encode() in recorder.seen) == (not encrypted)


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto's clients are not installed")
@pytest.mark.parametrize("encrypted", [False, True])
def test_devices_show_no_row_where_tls_is_on(tmp_path: Path, encrypted: bool) -> None:
    """A device reads, another publishes; both pass the recorder."""
    certificates, recorder, port = Certificates(tmp_path / "tls"), Recorder(), choose_port()
    files = {"certificate": certificates.cert, "key": certificates.key} if encrypted else {}

    async def run() -> None:
        deployment = parse_deployment(yaml.safe_dump(_document("root", root={})), "test.yaml")
        listening = Listening(mqtt=("127.0.0.1", port), **files)
        settings = Settings(state_dir=tmp_path / "state", listening=listening, job=False)
        async with (
            open_runtime(settings, deployment) as runtime,
            await Client.connect(state_dir=tmp_path / "state") as client,
            recorder.before(port) as before,
        ):
            assert runtime.server is not None
            bridge = Bridge(Gateway(client, tmp_path / "state"), runtime.server.url, runtime.server.directory)
            bridging = asyncio.create_task(bridge.run())
            given = await client.control("device-add", name="lamp", reads=["all"], publishes=["notes"])
            login = ["-h", "127.0.0.1", "-p", str(before), "-u", "lamp", "-P", str(given["password"])]
            login += ["--cafile", str(certificates.ca)] if encrypted else []
            reads = ["-q", "1", "-c", "-i", "lamp-reads", "-t", "headgate/all", "-C", "1"]
            reader = await asyncio.create_subprocess_exec("mosquitto_sub", *login, *reads, stdout=PIPE, stderr=PIPE)
            await asyncio.to_thread(_commit, runtime.url)
            said, wrong = await asyncio.wait_for(reader.communicate(), 60)
            assert MARKER in said.decode(), wrong
            sends = ["-q", "1", "-t", "headgate/publish/notes", "-m", f'{{"text": "{MARKER}"}}']
            sender = await asyncio.create_subprocess_exec("mosquitto_pub", *login, *sends)
            assert await asyncio.wait_for(sender.wait(), 60) == 0
            await cancel_all([bridging])

    asyncio.run(run())
    assert recorder.connections >= 2
    assert len(recorder.seen) > 500
    assert (MARKER.encode() in recorder.seen) == (not encrypted)


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_gateway_shows_no_row_where_tls_is_on(tmp_path: Path, encrypted: bool) -> None:
    certificates, recorder, port = Certificates(tmp_path / "tls"), Recorder(), choose_port()
    program = [
        sys.executable,
        "-m",
        "headgate.cli",
        "gateway",
        "--site",
        "root",
        "--state-dir",
        str(tmp_path / "state"),
    ]
    program += ["--http", f"127.0.0.1:{port}"]
    program += ["--tls-cert", str(certificates.cert), "--tls-key", str(certificates.key)] if encrypted else []

    async def run() -> None:
        deployment = parse_deployment(yaml.safe_dump(_document("root", root={})), "test.yaml")
        settings = Settings(state_dir=tmp_path / "state", job=False, http=True, http_address="127.0.0.1:0")
        async with open_runtime(settings, deployment) as runtime, recorder.before(port) as before:
            await asyncio.to_thread(_commit, runtime.url)
            gateway = await asyncio.create_subprocess_exec(*program, stdout=PIPE, stderr=PIPE, env={**os.environ})
            token = read_token(tmp_path / "state")
            headers = {"Authorization": f"Bearer {token}", "Host": f"127.0.0.1:{port}"}
            trust = ssl.create_default_context(cafile=str(certificates.ca))
            url = f"{'https' if encrypted else 'http'}://127.0.0.1:{before}/api/subscriptions/all/events"

            async def read() -> bool:
                async with httpx.AsyncClient(headers=headers, verify=trust, timeout=60, trust_env=False) as http:
                    try:
                        async with http.stream("GET", url) as answer:
                            async for line in answer.aiter_lines():
                                if MARKER in line:
                                    return True
                    except httpx.TransportError:
                        return False  # the gateway is still being started
                return False

            try:
                assert await until(read)
            finally:
                gateway.terminate()
                await gateway.communicate()

    asyncio.run(run())
    assert len(recorder.seen) > 500
    assert (MARKER.encode() in recorder.seen) == (not encrypted)
