"""Which nats-server is run: one on PATH that is too old is passed over, or refused in words that say what is needed."""

from __future__ import annotations

import logging
import os
import sysconfig
from pathlib import Path

import pytest

from headgate.fabric import EmbeddedServer, FabricError
from headgate.fabric.listening import Listening
from headgate.fabric.place import choose_port
from headgate.fabric.program import OLDEST_MQTT, OLDEST_SERVER, find_server, server_version
from headgate.service.doctor import check_nats


def program(directory: Path, said: str) -> Path:
    """A program that says it is of a version, and does nothing else."""
    directory.mkdir(exist_ok=True)
    place = directory / "nats-server"
    place.write_text(f"#!/bin/sh\necho '{said}'\n", encoding="ascii")
    place.chmod(0o755)
    return place


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that a wheel would put its program into; empty."""
    place = tmp_path / "scripts"
    place.mkdir()
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(place))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    return place


def test_the_one_on_the_path_is_taken_where_it_is_new_enough(tmp_path: Path, wheel: Path) -> None:
    program(wheel, "nats-server: v2.15.1")
    for said in ("nats-server: v2.11.0", "nats-server: v2.15.9", "nats-server: v3.0.0-dev"):
        own = program(tmp_path / "path", said)
        os.utime(own, ns=(0, len(said) * 10**9 + int(said[14])))  # as another file: its version is asked for again
        assert find_server() == own


@pytest.mark.parametrize("said", ["nats-server: v2.10.29", "nats-server: v1.4.1", "no version at all", ""])
def test_one_that_is_too_old_is_passed_over_and_that_is_said(
    tmp_path: Path, wheel: Path, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = program(tmp_path / "path", said), program(wheel, "nats-server: v2.15.1")
    with caplog.at_level(logging.WARNING):
        assert find_server() == new
    assert f"{old} " in caplog.text
    assert "2.11 or newer is needed" in caplog.text
    assert f"{new} is used" in caplog.text
    assert server_version(new) == (2, 15, 1)


def test_without_another_one_it_is_refused(tmp_path: Path, wheel: Path) -> None:
    with pytest.raises(FabricError, match="there is no nats-server"):
        find_server()
    old = program(tmp_path / "path", "nats-server: v2.10.29")
    assert list(wheel.iterdir()) == []
    with pytest.raises(FabricError, match=r"is of version 2\.10\.29, and 2\.11 or newer is needed") as refused:
        EmbeddedServer(tmp_path / "state").start()
    assert "headgate[embedded]" in str(refused.value)
    found = check_nats(tmp_path)
    assert (found.state, str(old) in found.found) == ("bad", True)


def test_mqtt_needs_a_newer_one(tmp_path: Path, wheel: Path) -> None:
    assert OLDEST_SERVER < OLDEST_MQTT
    program(tmp_path / "path", "nats-server: v2.12.3")
    assert list(wheel.iterdir()) == []
    listening = Listening(mqtt=("127.0.0.1", choose_port()))
    with pytest.raises(FabricError, match=r"is of version 2\.12\.3, and 2\.15 or newer is needed"):
        EmbeddedServer(tmp_path / "state", listening=listening).start()
