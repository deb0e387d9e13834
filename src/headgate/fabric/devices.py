"""Devices that speak MQTT to the embedded server: a file beside its keys with names, public keys and topics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from headgate.errors import HeadgateError, nearest
from headgate.fabric.place import write_whole
from headgate.wire.frame import WireError
from headgate.wire.sealed import seal, unseal

DEVICE_FILE: Final = "devices.json"
TOPICS: Final = "headgate"
"""Rows of a subscription are on the topic `headgate/NAME`."""
INTAKE: Final = "headgate-in"
"""Rows for a stream are published on the topic `headgate-in/STREAM`."""


class DeviceError(HeadgateError):
    """A device that cannot be made or is not known."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device: its public key, the subscriptions it may read and the streams it may publish into (`*` is any)."""

    name: str
    key: str
    issued_s: int
    reads: tuple[str, ...] = ()
    publishes: tuple[str, ...] = ()
    expires_s: int | None = None

    @property
    def read(self) -> tuple[str, ...]:
        """The subjects it may subscribe to."""
        if "*" in self.reads:
            return (TOPICS, f"{TOPICS}.>")  # `headgate/#` stands for both
        return tuple(subject for name in self.reads for subject in (f"{TOPICS}.{name}", f"{TOPICS}.{name}.>"))

    @property
    def published(self) -> tuple[str, ...]:
        """The subjects it may publish to."""
        return tuple(f"{INTAKE}.{name}" for name in self.publishes)


@dataclass(frozen=True, slots=True)
class Devices:
    """All devices by name, and the keys that were revoked, each with the second before which it counts for nothing."""

    devices: Mapping[str, Device] = field(default_factory=dict)
    revoked: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> Self:
        """The devices of a server; none where there is no file."""
        path = directory / DEVICE_FILE
        try:
            found = json.loads(unseal(path.read_bytes()))
            known = [
                Device(**{**each, "reads": tuple(each["reads"]), "publishes": tuple(each["publishes"])})
                for each in found["devices"]
            ]
            return cls({each.name: each for each in known}, dict(found["revoked"]))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, KeyError, TypeError, WireError) as error:
            raise DeviceError(
                f"the file {path} with the devices cannot be read: {error!r}", hint="restore it from a backup"
            ) from error

    def write(self, directory: Path) -> None:
        """Store them in one step."""
        document = {"devices": [asdict(each) for each in self.devices.values()], "revoked": dict(self.revoked)}
        write_whole(directory / DEVICE_FILE, seal(json.dumps(document, indent=1).encode()))

    def added(self, device: Device) -> Self:
        """With a new device."""
        if device.name in self.devices:
            raise DeviceError(f"there is a device {device.name!r}", hint="revoke it first", kind="conflict")
        if not device.reads and not device.publishes:
            raise DeviceError(
                f"device {device.name!r} could do nothing", hint="give --read SUBSCRIPTION or --publish STREAM"
            )
        return replace(self, devices={**self.devices, device.name: device})

    def removed(self, name: str, now_s: int) -> Self:
        """Without a device, whose key is revoked."""
        found = self.devices.get(name)
        if found is None:
            close = nearest(name, self.devices)
            hint = f"did you mean {close!r}?" if close else "see `headgate device list`"
            raise DeviceError(f"no device {name!r}", hint=hint, kind="unknown")
        rest = {other: each for other, each in self.devices.items() if other != name}
        return replace(self, devices=rest, revoked={**self.revoked, found.key: now_s})
