"""A server that wants TLS and a password: what a user's own NATS looks like."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
from tests.live import until

from headgate.fabric import Fabric, FabricError, find_server
from headgate.fabric.place import choose_port

pytestmark = pytest.mark.nats


def test_connects_with_tls_and_a_password_and_says_why_it_cannot(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    ca, cert, key = tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem"
    authority.cert_pem.write_to_path(ca)
    certificate.cert_chain_pems[0].write_to_path(cert)
    certificate.private_key_pem.write_to_path(key)
    port = choose_port()
    config = tmp_path / "server.conf"
    config.write_text(
        f"host: 127.0.0.1\nport: {port}\njetstream {{ store_dir: {json.dumps(str(tmp_path / 'data'))} }}\n"
        f"tls {{ cert_file: {json.dumps(str(cert))}, key_file: {json.dumps(str(key))} }}\n"
        "authorization { user: ada, password: secret }\n",
        encoding="utf-8",
    )
    guarded = [sys.executable, "-m", "headgate.fabric.guard", str(find_server()), "-c", str(config)]
    server = subprocess.Popen(guarded, stderr=subprocess.DEVNULL)
    url = f"tls://127.0.0.1:{port}"

    async def run() -> None:
        async def up() -> Fabric | None:
            try:
                return await Fabric.connect(url, tls_ca=str(ca), user="ada", password="secret")
            except FabricError:
                return None

        async with await until(up) as fabric:
            await fabric.ensure(fabric.logs.state)
            assert await fabric.publish(fabric.logs.head, b"7") == 1
        for wrong in ({"tls_ca": str(ca), "user": "ada", "password": "guess"}, {"user": "ada", "password": "secret"}):
            with pytest.raises(FabricError, match="cannot connect to NATS at tls"):
                await Fabric.connect(url, **wrong)

    try:
        asyncio.run(run())
    finally:
        server.terminate()
        server.wait(60)
