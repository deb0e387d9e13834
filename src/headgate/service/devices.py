"""Devices that may speak MQTT: made, listed and put out by operators.

A device gets a password once: a signed statement of the topics that it may use. Only its public key is kept.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from headgate.errors import HeadgateError
from headgate.fabric import EmbeddedServer, Fabric
from headgate.fabric.accounts import DEVICES, SYSTEM_FILE, Keys
from headgate.fabric.devices import Device, DeviceError, Devices
from headgate.fabric.keys import KeyPair
from headgate.model import parse_duration
from headgate.service.audit import Audit
from headgate.service.requests import Handler, Request, text_of, texts_of
from headgate.service.rights import author_of
from headgate.wire.logs import Logs

_UPDATE: Final = "$SYS.REQ.CLAIMS.UPDATE"
_OK: Final = 200
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}|\*")


class DeviceDesk:
    """Answers requests about devices; they are those of the embedded server."""

    def __init__(self, server: EmbeddedServer | None, logs: Logs, audit: Audit) -> None:
        self._server = server
        self._logs = logs
        self._audit = audit
        self.out: Callable[[], Mapping[str, float]] = dict
        """Until when each key is out that has sent too much."""

    @property
    def verbs(self) -> dict[str, Handler]:
        """The requests of operators."""
        return {"device-add": self._add, "device-list": self._list, "device-revoke": self._revoke}

    def _directory(self) -> Path:
        if self._server is None:
            raise DeviceError(
                "devices speak MQTT to the embedded NATS server only, and this deployment uses one of your own",
                hint="let them publish and subscribe there by other means",
            )
        return self._server.directory

    async def _add(self, request: Request) -> dict[str, Any]:
        directory = self._directory()
        reads, publishes = (texts_of(request, key) if key in request else [] for key in ("reads", "publishes"))
        for each in (text_of(request, "name"), *reads, *publishes):
            if not _NAME.fullmatch(each):
                raise DeviceError(f"{each[:60]!r} is no name", hint="use letters, digits, '-' and '_'")
        expires_s = None
        if request.get("expires") is not None:
            expires_s = int(time.time() + parse_duration(text_of(request, "expires")))
        key, now_s = KeyPair.new("user").public, int(time.time())
        device = Device(text_of(request, "name"), key, now_s, tuple(reads), tuple(publishes), expires_s)
        found = Devices.read(directory).added(device)
        password = Keys.open(directory).password(device)
        self._audit.record(author_of(request), f"device add {device.name}", {device.name: _shown(device)})
        found.write(directory)
        return {**_shown(device), "password": password}

    async def _list(self, _: Request) -> dict[str, Any]:
        out, found = self.out(), Devices.read(self._directory()).devices.values()
        return {"devices": [{**_shown(each), "out_until_s": out.get(each.key)} for each in found]}

    async def _revoke(self, request: Request) -> dict[str, Any]:
        """Put a device out: the server ends its connection."""
        directory, name = self._directory(), text_of(request, "name")
        found = Devices.read(directory).removed(name, int(time.time()))
        self._audit.record(author_of(request), f"device revoke {name}", {name: None})
        found.write(directory)
        assert self._server is not None
        system = str(directory / SYSTEM_FILE)
        async with await Fabric.connect(self._server.url, self._logs, user_credentials=system) as fabric:
            statement = Keys.open(directory).account(
                DEVICES, {**found.revoked, **dict.fromkeys(self.out(), int(time.time()))}
            )
            answer = json.loads(await fabric.request(_UPDATE, statement.encode()))
            if answer.get("data", {}).get("code") != _OK:
                raise HeadgateError(f"the server did not take the revocation: {answer.get('error')}")
        return {}


def _shown(device: Device) -> dict[str, Any]:
    return {
        "name": device.name,
        "reads": list(device.reads),
        "publishes": list(device.publishes),
        "issued_s": device.issued_s,
        "expires_s": device.expires_s,
    }
