"""Who is let in to the embedded server, who can read its files, and what is refused before anything is sent."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from tests.live import running, small

from headgate.fabric import EmbeddedServer, Fabric, FabricError
from headgate.fabric.address import is_loopback, reach
from headgate.fabric.keys import CredentialsError, KeyPair, read_claims, statement_of
from headgate.fabric.listening import Listening
from headgate.fabric.place import choose_port
from headgate.fabric.server import running_url
from headgate.private import make_private


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def loose(directory: Path) -> list[str]:
    """What others than its owner could read or enter."""
    found = [directory, *directory.rglob("*")]
    return [str(path) for path in found if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o077]


@pytest.mark.nats
def test_who_has_no_credentials_is_not_let_in(tmp_path: Path, usual_umask: None) -> None:
    with EmbeddedServer(tmp_path / "state", sync_always=False) as server:

        async def run() -> None:
            for options in ({}, {"user": "operator", "password": "operator"}, {"token": "operator"}):
                with pytest.raises(FabricError, match=r"give --creds FILE.*its owner is let in"):
                    await Fabric.connect(server.listens_at, **options)
            with EmbeddedServer(tmp_path / "other", sync_always=False) as other:
                theirs = str(other.directory / "operator.creds")
                with pytest.raises(FabricError, match="give --creds FILE"):
                    await Fabric.connect(server.listens_at, user_credentials=theirs)
            async with await Fabric.connect(server.url) as owner:
                await owner.ensure(owner.logs.state)
                assert await owner.publish(owner.logs.head, b"1") == 1

        asyncio.run(run())
        assert loose(tmp_path / "state" / "nats") == []
        said = (server.directory / "server.conf").read_text() + (server.directory / "server.log").read_text()
        secrets = json.loads((server.directory / "keys.json").read_text())
        assert not [seed for seed in (secrets["operator"], *secrets["accounts"].values()) if seed in said]


def test_every_file_of_a_running_deployment_is_its_owners(tmp_path: Path, nats_url: str, usual_umask: None) -> None:
    """A state directory that was open before is closed with what lies in it."""
    state = tmp_path / "state"
    (state / "checkpoints").mkdir(parents=True)
    (state / "checkpoints" / "old").write_text("x", encoding="utf-8")

    async def run() -> None:
        async with running(small(here={"site": "leaf"}), state, nats_url):
            assert (state / "catalog.db").exists()
            assert loose(state) == []

    asyncio.run(run())
    (tmp_path / "new").write_text("", encoding="utf-8")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o644  # the program's own umask is back


def test_a_closed_directory_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    make_private(tmp_path)
    assert stat.S_IMODE(Path("/").stat().st_mode) & 0o077
    (tmp_path / "shared").write_text("", encoding="utf-8")
    (tmp_path / "shared").chmod(0o644)
    make_private(tmp_path)
    assert loose(tmp_path) == [str(tmp_path / "shared")]


@pytest.mark.nats
def test_lost_keys_are_named_and_nothing_is_started(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path, sync_always=False) as server:
        keys = server.directory / "keys.json"

        async def write() -> None:
            async with await Fabric.connect(server.url) as fabric:
                await fabric.ensure(fabric.logs.state)

        asyncio.run(write())
    text = keys.read_text(encoding="utf-8")
    keys.write_text(text.replace("SO", "SX", 1), encoding="utf-8")
    with pytest.raises(FabricError, match=r"keys\.json.* cannot be read.*restore it from a backup"):
        EmbeddedServer(tmp_path).start()
    keys.unlink()
    with pytest.raises(FabricError, match=r"keys\.json.* is gone.*restore it from a backup"):
        EmbeddedServer(tmp_path).start()
    assert not keys.exists()
    keys.write_text(text, encoding="utf-8")
    with EmbeddedServer(tmp_path, sync_always=False):
        assert running_url(tmp_path) is not None


@pytest.mark.nats
def test_beyond_loopback_there_is_tls_or_nothing(tmp_path: Path) -> None:
    with pytest.raises(FabricError, match=r"listen on 0\.0\.0\.0, which others can reach, without TLS"):
        Listening("0.0.0.0")
    with pytest.raises(FabricError, match="there is no file"):
        Listening("0.0.0.0", None, tmp_path / "no.pem", tmp_path / "no.key")
    authority = trustme.CA()
    issued = authority.issue_cert("headgate.example", "127.0.0.1")
    ca, cert, key = tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem"
    authority.cert_pem.write_to_path(ca)
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    port = choose_port()
    listening = Listening("0.0.0.0", port, cert, key)
    with EmbeddedServer(tmp_path / "state", sync_always=False, listening=listening) as server:
        creds = str(server.directory / "operator.creds")

        async def run() -> None:
            async with await Fabric.connect(server.url) as local:
                await local.ensure(local.logs.state)
                await local.publish(local.logs.head, b"7")
            async with await Fabric.connect(
                f"tls://127.0.0.1:{port}", tls_ca=str(ca), user_credentials=creds
            ) as remote:
                assert (await remote.last(remote.logs.state, remote.logs.head)).data == b"7"  # type: ignore[union-attr]
            with pytest.raises(FabricError, match="cannot connect to NATS at tls"):  # nobody signed it
                await Fabric.connect(f"tls://127.0.0.1:{port}", user_credentials=creds)
            with pytest.raises(FabricError, match="which is taken"):
                EmbeddedServer(tmp_path / "second", listening=listening).start()

        asyncio.run(run())
        with socket.create_connection(("127.0.0.1", port), 5) as plain:  # the first line is all that it says
            plain.settimeout(5)
            said = plain.recv(1 << 16)
            assert json.loads(said.removeprefix(b"INFO "))["tls_required"] is True
            plain.sendall(b'CONNECT {"verbose":false}\r\nSUB hg.> 1\r\nPING\r\n')
            assert b"PONG" not in plain.recv(1 << 16)


@pytest.mark.nats
def test_who_asks_for_tls_says_nothing_to_a_server_without_it(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path, sync_always=False) as server:
        creds = str(server.directory / "operator.creds")
        with pytest.raises(FabricError, match="does not speak TLS"):
            asyncio.run(Fabric.connect(f"tls://127.0.0.1:{server.port}", user_credentials=creds))


def test_an_address_elsewhere_needs_tls() -> None:
    for url in ("nats://10.1.2.3:4222", "example.org", "nats://127.0.0.1:4222,nats://example.org"):
        with pytest.raises(FabricError, match=r"is not on this machine and has no TLS.*tls://HOST:PORT"):
            reach(url, {})
        assert reach(url, {"plain": "1"}).options == {}
    insisting = reach("tls://example.org", {}).trust
    assert insisting is not None
    assert insisting.insisting
    assert reach("nats://[::1]:4222", {}).trust is None
    assert not is_loopback("::")


def test_keys_and_statements() -> None:
    account, user = KeyPair.new("account"), KeyPair.new("user")
    assert user.seed not in repr(user)
    assert KeyPair.of(user.seed) == user
    claims = read_claims(account.sign({"sub": user.public}))
    assert claims["iss"] == account.public
    for text in ("", "-----BEGIN NATS USER JWT-----", "nothing"):
        with pytest.raises(CredentialsError):
            statement_of(text)
    for statement in ("", "x", "a.b.c", "e30"):
        with pytest.raises(CredentialsError):
            read_claims(statement)
