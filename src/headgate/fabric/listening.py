"""Where the embedded server takes connections, and by which certificates."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from headgate.fabric.address import is_loopback
from headgate.fabric.place import HOST, ServerPlace
from headgate.protocol.port import FabricError


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a server takes connections: by default on loopback, at a port of its own choice, without TLS.

    `certificate` and `key` are PEM files. With `authority`, another one, whoever connects has to have a certificate
    that was signed by it; programs on this machine show that of the server. `mqtt` is where it takes connections of
    devices, nowhere by default. `plain` says that the network is private: rows may cross it without TLS.
    """

    host: str = HOST
    port: int | None = None
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    mqtt: tuple[str, int] | None = None
    plain: bool = False

    def __post_init__(self) -> None:
        exposed = [host for host in (self.host, *(self.mqtt or ())[:1]) if not is_loopback(str(host))]
        if exposed and self.certificate is None and not self.plain:
            raise FabricError(
                f"NATS is to listen on {exposed[0]}, which others can reach, without TLS: rows and credentials would "
                "cross the network for everybody to read",
                hint="give a certificate and its key (`nats: {tls: {cert: FILE, key: FILE}}`), or listen on 127.0.0.1",
            )
        if (self.certificate is None) != (self.key is None):
            raise FabricError("TLS needs a certificate and its key", hint="give both files")
        if self.authority is not None and self.certificate is None:
            raise FabricError("certificates of clients are asked for by TLS only", hint="give the server's own, too")
        for file in self.files:
            if not file.is_file():
                raise FabricError(f"there is no file {file}", hint="give the certificate and its key as PEM files")

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are read."""
        return tuple(file for file in (self.certificate, self.key, self.authority) if file is not None)

    @property
    def configuration(self) -> str:
        """The part of the server's configuration that has TLS and MQTT."""
        secured = self._tls
        if self.mqtt is None:
            return secured
        host, port = self.mqtt
        return f"{secured}mqtt {{ host: {json.dumps(host)}, port: {port}\n{secured}}}\n"

    @property
    def mqtt_reached(self) -> tuple[str, int] | None:
        """Where this machine reaches the listener of devices."""
        if self.mqtt is None:
            return None
        host, port = self.mqtt
        return ServerPlace(port, 0, "", host).reached_at, port

    @property
    def _tls(self) -> str:
        if self.certificate is None:
            return ""
        files = {"cert_file": self.certificate, "key_file": self.key, "ca_file": self.authority}
        given = [f"{name}: {json.dumps(str(file.absolute()))}" for name, file in files.items() if file is not None]
        given += ["verify: true"] if self.authority is not None else []
        return f"tls {{ {', '.join(given)} }}\n"
