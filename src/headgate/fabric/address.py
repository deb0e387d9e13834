"""Where a server is and how to be let in: from an address and options to what nats-py is given.

An address is `nats://HOST:PORT`, `tls://HOST:PORT`, or `file:///STATE/nats`: the directory of an embedded server, which
says at which port the server is now and has the credentials of whoever may read it. No address that this program makes
has a secret in it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from headgate.fabric.accounts import OPERATOR_FILE
from headgate.fabric.place import PORT_FILE, ServerPlace
from headgate.fabric.trust import Trust
from headgate.protocol.port import FabricError

_ENCRYPTED: Final = ("tls", "wss")
PLAIN_HINT: Final = (
    "write tls://HOST:PORT (HEADGATE_TLS_CA names the authority that signed the server); where the network itself is "
    "private, such as a VPN, set HEADGATE_PLAIN_NATS=1"
)


@dataclass(frozen=True, slots=True)
class Reach:
    """What to give to nats-py; `file` is the port file of an embedded server, `trust` what is insisted on for TLS."""

    url: str
    file: Path | None = None
    trust: Trust | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def address_of(directory: Path) -> str:
    """The address of the embedded server with that directory.

    >>> address_of(Path("/var/lib/my state/nats"))
    'file:///var/lib/my%20state/nats'
    """
    return directory.absolute().as_uri()


def directory_of(url: str) -> Path | None:
    """The directory that an address names, None for an address of the network."""
    return Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, and nobody else can reach it there.

    >>> is_loopback("localhost"), is_loopback("127.0.0.3"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def split_listen(text: str) -> tuple[str, int | None]:
    """A host and a port, if one is given, of `HOST` or `HOST:PORT`.

    >>> split_listen("0.0.0.0:4222"), split_listen("localhost"), split_listen("[::1]:4222")
    (('0.0.0.0', 4222), ('localhost', None), ('::1', 4222))
    """
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or "@" in text or "/" in text:
        raise FabricError(f"{text!r} is nowhere to listen", hint="write HOST or HOST:PORT, such as 0.0.0.0:4222")
    return host, port


def reach(url: str, given: Mapping[str, Any]) -> Reach:
    """How to connect. Options that begin with `tls_`, and `plain`, are ours, all others nats-py's.

    `tls_ca`, `tls_cert` and `tls_key` are files, `tls_fingerprint` is that of the one certificate to be trusted.

    Raises:
        FabricError: No server runs there, or rows and passwords would cross a network in plain text.
    """
    options = dict(given)
    plain = str(options.pop("plain", "")).lower() in ("true", "1")
    files = {name: options.pop(name, None) for name in ("tls_ca", "tls_cert", "tls_key", "tls_fingerprint")}
    directory = directory_of(url)
    if directory is not None:
        return _embedded(directory, options)
    encrypted = True
    for each in url.split(","):
        parts = urlsplit(each if "://" in each else f"nats://{each}")
        if parts.scheme not in _ENCRYPTED:
            encrypted = False
            if not plain and not is_loopback(parts.hostname or ""):
                raise FabricError(
                    f"the address {each} is not on this machine and has no TLS: rows and passwords would cross the "
                    "network for everybody to read",
                    hint=PLAIN_HINT,
                )
    trusting = encrypted or any(files.values())
    return Reach(url, None, replace(Trust.of(**files), insisting=encrypted) if trusting else None, options)


def _embedded(directory: Path, options: dict[str, Any]) -> Reach:
    file = directory / PORT_FILE
    place = ServerPlace.read(file)
    if place is None:
        raise FabricError(f"no NATS server runs in {directory}", hint="is the deployment up?")
    # A server of before there were keys, or one that is just starting, has none: let it say what it wants.
    given = {"user_credentials", "user_jwt_cb"} & options.keys()
    if not given and (directory / OPERATOR_FILE).exists():
        options["user_credentials"] = str(directory / OPERATOR_FILE)
    if not place.certificate:
        return Reach(place.url, file, None, options)
    certificate, key = (place.certificate, place.key) if place.key else (None, None)
    return Reach(place.url, file, Trust(place.certificate, certificate, key, pinned=True), options)
