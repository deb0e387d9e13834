"""TLS on every hop: what is recorded on the wire, certificates of clients, fingerprints, and certificates replaced."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
import trustme
import yaml
from tests.live import until

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.fabric import EmbeddedServer, Fabric, FabricError
from headgate.fabric.fingerprint import Fingerprint
from headgate.fabric.listening import Listening
from headgate.fabric.place import ServerPlace
from headgate.pipeline.worker import Address
from headgate.service.access import read_token
from headgate.service.runtime import open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

pytestmark = pytest.mark.nats
MARKER = "a row that nobody else may read"


class Certificates:
    """An authority and what it has signed, as files."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.authority = trustme.CA()
        self.ca, self.cert, self.key = (directory / name for name in ("ca.pem", "cert.pem", "key.pem"))
        self.authority.cert_pem.write_to_path(self.ca)
        self.issue()

    def issue(self) -> None:
        """A new certificate in place of the one before."""
        issued = self.authority.issue_cert("localhost", "127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(self.cert)
        issued.private_key_pem.write_to_path(self.key)

    def listening(self, *, mutual: bool = False) -> Listening:
        return Listening(certificate=self.cert, key=self.key, authority=self.ca if mutual else None)


class Recorder:
    """A proxy before a port of loopback that keeps all that passes."""

    def __init__(self) -> None:
        self.seen = bytearray()
        self.connections = 0

    @asynccontextmanager
    async def before(self, port: int) -> AsyncIterator[int]:
        tasks: set[asyncio.Task[None]] = set()
        writers: list[asyncio.StreamWriter] = []

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while data := await reader.read(1 << 16):
                    self.seen += data
                    writer.write(data)
                    await writer.drain()
            writer.close()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            there, back = await asyncio.open_connection("127.0.0.1", port)
            writers.extend((back, writer))
            for ends in ((reader, back), (there, writer)):
                task = asyncio.create_task(pass_on(*ends))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for writer in writers:
                writer.close()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("how", ["plain", "tls", "mutual"])
def test_no_hop_shows_a_row_where_tls_is_on(tmp_path: Path, how: str) -> None:
    """Service, relays, what the job's workers publish, and readers all pass the recorder."""
    certificates, recorder = Certificates(tmp_path / "tls"), Recorder()
    listening = None if how == "plain" else certificates.listening(mutual=how == "mutual")
    document = {
        "sites": {"root": {}, "leaf": {}},
        "streams": {"notes": {"root": "root", "source": {"format": "nats"}, "schema": {"text": "string"}}},
        "plan": {"notes": {"leaf": "root"}},
        "subscriptions": {"all": {"stream": "notes", "site": "leaf"}},
    }

    async def run() -> None:
        server = EmbeddedServer(tmp_path / "nats", sync_always=False, listening=listening)
        await asyncio.to_thread(server.start)
        try:
            place = ServerPlace.read(server.port_file)
            assert place is not None
            async with recorder.before(place.port) as port:
                replace(place, port=port).write(server.port_file)  # everybody connects by this file
                deployment = parse_deployment(yaml.safe_dump(document), "test.yaml")
                settings = Settings(state_dir=tmp_path / "state", nats=server.url, job=False)
                async with open_runtime(settings, deployment) as runtime, await Client.connect(server.url) as client:
                    assert runtime.roles is not None
                    job = {"user_credentials": str(runtime.roles.job_file())}
                    await asyncio.to_thread(_commit, Address(server.url, Logs(), job))
                    await client.publish("notes", pa.table({"text": [MARKER]}))
                    inbox = await client.subscribe("all")
                    assert (await anext(aiter(inbox))).to_pylist()[0]["text"] == MARKER
                    await inbox.close()
        finally:
            server.stop()

    asyncio.run(run())
    assert recorder.connections >= 7  # twice for each: one connection is tried first
    assert (MARKER.encode() in recorder.seen) == (how == "plain")
    assert len(recorder.seen) > 20_000


def _commit(address: Address) -> None:
    with DirectCommits(address, "test") as direct:
        direct.commit("notes", pa.record_batch({"text": [MARKER]}), 0, 0.0)


def test_without_a_certificate_of_its_own_nobody_is_let_in(tmp_path: Path) -> None:
    certificates, strangers = Certificates(tmp_path / "tls"), Certificates(tmp_path / "strangers")

    async def run() -> None:
        with EmbeddedServer(
            tmp_path / "state", sync_always=False, listening=certificates.listening(mutual=True)
        ) as server:
            given = {"tls_ca": str(certificates.ca), "user_credentials": str(server.directory / "operator.creds")}
            for more in ({}, {"tls_cert": str(strangers.cert), "tls_key": str(strangers.key)}):
                with pytest.raises(FabricError, match="cannot connect to NATS at tls"):
                    await Fabric.connect(server.listens_at, **given, **more)
            mine = {"tls_cert": str(certificates.cert), "tls_key": str(certificates.key)}
            async with await Fabric.connect(server.listens_at, **given, **mine) as fabric:
                assert fabric.connected

    asyncio.run(run())
    with pytest.raises(FabricError, match="certificates of clients are asked for by TLS only"):
        Listening(authority=certificates.ca)


def test_a_server_is_trusted_by_its_fingerprint_alone(tmp_path: Path) -> None:
    certificates, other = Certificates(tmp_path / "tls"), Certificates(tmp_path / "other")

    async def run() -> None:
        with EmbeddedServer(tmp_path / "state", sync_always=False, listening=certificates.listening()) as server:
            creds = {"user_credentials": str(server.directory / "operator.creds")}
            assert server.fingerprint == Fingerprint.of_file(certificates.cert)
            async with await Fabric.connect(server.listens_at, tls_fingerprint=str(server.fingerprint), **creds) as it:
                assert it.connected
            wrong = str(Fingerprint.of_file(other.cert))
            with pytest.raises(FabricError, match="not the one with the fingerprint"):
                await Fabric.connect(server.listens_at, tls_fingerprint=wrong, **creds)
            with pytest.raises(FabricError, match="cannot connect to NATS at tls"):
                await Fabric.connect(server.listens_at, **creds)

    asyncio.run(run())
    shown = subprocess.run(
        ["openssl", "x509", "-in", str(certificates.cert), "-noout", "-fingerprint", "-sha256"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert Fingerprint.parse(shown) == Fingerprint.of_file(certificates.cert)
    for text in ("sha256:12", "", "x" * 64):
        with pytest.raises(FabricError, match="no fingerprint"):
            Fingerprint.parse(text)
    with pytest.raises(FabricError, match="cannot be read"):
        Fingerprint.of_file(certificates.key)


def test_certificates_are_replaced_while_it_runs(tmp_path: Path) -> None:
    """Connections that are open go on; new ones, and those that come back, see the new certificate."""
    certificates = Certificates(tmp_path / "tls")

    async def run() -> None:
        with EmbeddedServer(tmp_path / "state", sync_always=False, listening=certificates.listening()) as server:
            assert not server.renew()
            before = server.fingerprint
            async with await Fabric.connect(server.url) as fabric:
                await fabric.ensure(fabric.logs.state)
                certificates.issue()
                assert server.fingerprint != before
                assert server.renew()
                assert not server.renew()
                await fabric.publish(fabric.logs.head, b"1")  # the connection stands
                creds = {"user_credentials": str(server.directory / "operator.creds")}

                async def seen() -> bool:
                    try:
                        found = await Fabric.connect(
                            server.listens_at, tls_fingerprint=str(server.fingerprint), **creds
                        )
                    except FabricError:
                        return False
                    await found.close()
                    return True

                await until(seen)
                server.kill()
                await asyncio.to_thread(server.start)
                await until(lambda: _published(fabric))  # it has come back, and trusts the new one

    asyncio.run(run())


async def _published(fabric: Fabric) -> bool:
    with contextlib.suppress(FabricError):
        return await fabric.publish(fabric.logs.head, str(time.time()).encode(), timeout_s=1.0) > 0
    return False


@pytest.mark.long
@pytest.mark.parametrize("encrypted", [False, True])
def test_the_http_api_shows_no_row_where_tls_is_on(tmp_path: Path, encrypted: bool) -> None:
    certificates, recorder = Certificates(tmp_path / "tls"), Recorder()
    document = {
        "sites": {"root": {}},
        "streams": {"notes": {"root": "root", "source": {"format": "nats"}, "schema": {"text": "string"}}},
    }

    async def run() -> None:
        settings = Settings(
            state_dir=tmp_path / "state",
            job=False,
            http=True,
            http_address="127.0.0.1:0",
            http_tls=(str(certificates.cert), str(certificates.key)) if encrypted else None,
        )
        async with open_runtime(settings, parse_deployment(yaml.safe_dump(document), "test.yaml")) as runtime:
            assert runtime.face is not None
            scheme, _, port = runtime.face.address.split(":")
            assert scheme == ("https" if encrypted else "http")
            headers = {"Authorization": f"Bearer {read_token(tmp_path / 'state')}", "Host": f"127.0.0.1:{port}"}
            trust = ssl.create_default_context(cafile=str(certificates.ca))
            async with recorder.before(int(port)) as before:
                url = f"{scheme}://127.0.0.1:{before}"
                async with httpx.AsyncClient(headers=headers, verify=trust, timeout=60, trust_env=False) as http:

                    async def published() -> bool:
                        rows = [{"text": MARKER}]
                        with contextlib.suppress(httpx.TransportError):  # the process is still being started
                            return (await http.post(f"{url}/api/streams/notes/rows", json=rows)).status_code < 300
                        return False

                    await until(published)
                if encrypted:
                    with pytest.raises(httpx.TransportError):
                        async with httpx.AsyncClient(timeout=10, trust_env=False) as stranger:
                            await stranger.get(f"{url}/healthz")
                    old = await _certificate(int(port), certificates)
                    await asyncio.to_thread(certificates.issue)
                    await until(lambda: _replaced(int(port), certificates, old))

    asyncio.run(run())
    assert (MARKER.encode() in recorder.seen) == (not encrypted)
    assert len(recorder.seen) > 200


@pytest.mark.long
def test_the_http_api_lets_nobody_in_without_a_certificate_of_its_authority(tmp_path: Path) -> None:
    certificates, strangers = Certificates(tmp_path / "tls"), Certificates(tmp_path / "strangers")
    document = {
        "sites": {"root": {}},
        "streams": {"notes": {"root": "root", "source": {"format": "nats"}, "schema": {"text": "string"}}},
    }

    async def run() -> None:
        settings = Settings(
            state_dir=tmp_path / "state",
            job=False,
            http=True,
            http_address="127.0.0.1:0",
            http_tls=(str(certificates.cert), str(certificates.key)),
            http_tls_ca=str(certificates.ca),
        )
        async with open_runtime(settings, parse_deployment(yaml.safe_dump(document), "test.yaml")) as runtime:
            assert runtime.face is not None
            headers = {"Authorization": f"Bearer {read_token(tmp_path / 'state')}"}

            async def status(own: Certificates | None, *, known: bool = True) -> int | None:
                trust = ssl.create_default_context(cafile=str(certificates.ca))
                if own is not None:
                    trust.load_cert_chain(own.cert, own.key)
                given = headers if known else {}
                async with httpx.AsyncClient(headers=given, verify=trust, timeout=60, trust_env=False) as http:
                    with contextlib.suppress(httpx.TransportError):
                        return (await http.get(f"{runtime.face.address}/api/sites")).status_code
                    return None

            async def served() -> bool:
                return await status(certificates) == 200

            await until(served)
            assert await status(None) is None
            assert await status(strangers) is None
            assert await status(certificates, known=False) == 401  # a certificate is no token

    asyncio.run(run())


async def _certificate(port: int, certificates: Certificates) -> bytes:
    trust = ssl.create_default_context(cafile=str(certificates.ca))
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return found


async def _replaced(port: int, certificates: Certificates, old: bytes) -> bool:
    return await _certificate(port, certificates) != old
