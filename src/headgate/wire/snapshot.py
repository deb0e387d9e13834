"""A snapshot: the whole catalog at one revision, as relays and Spark workers receive it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.model import Deployment, Plan, Subscription
from headgate.wire import codec
from headgate.wire.identity import Identity

# In place of a size, which is never so large: the snapshot is in parts.
_PARTS: Final = b"\xff\xff\xff\xff"
# No text shrinks more: a size beyond it is a broken one, and would be allocated.
_MOST: Final = 100_000
_NONE: Final = '"subscriptions":{}}'


class SnapshotError(HeadgateError):
    """What was published as a revision of the catalog cannot be read."""


@dataclass(frozen=True)
class Snapshot:
    """The catalog at a revision.

    Attributes:
        revision: Counts the changes of the catalog; 0 is empty.
        deployment: Streams, sites, links, settings and every current subscription; its plan is `plan`.
        plan: The delivery trees in force, None when nothing has been planned.
        subscription_ids: The id of each subscription by name; ids are never reused.
        class_ids: The delivery class of each subscription by name; equal classes share an id, ids are never reused.
        contexts: By stream, the place in its root log up to which context updates are in the subscriptions.
        identity: Which deployment this is, and which incarnation of each stream.
    """

    revision: int
    deployment: Deployment
    plan: Plan | None = None
    subscription_ids: Mapping[str, int] = field(default_factory=dict)
    class_ids: Mapping[str, int] = field(default_factory=dict)
    contexts: Mapping[str, int] = field(default_factory=dict)
    identity: Identity = field(default_factory=Identity)

    def to_json(self) -> str:
        """The one JSON text of this snapshot: equal snapshots give equal bytes."""
        return SnapshotWriter().to_json(self)

    def to_bytes(self) -> bytes:
        """The compressed form in which a snapshot is published."""
        return SnapshotWriter().to_bytes(self)

    def _rest(self) -> str:
        """The text without subscriptions, which come last."""
        deployment = self.deployment
        document: dict[str, Any] = {
            "revision": self.revision,
            "streams": {name: codec.encode_stream(found) for name, found in deployment.streams.items()},
            "sites": {name: codec.encode_site(found) for name, found in deployment.sites.items()},
            "links": codec.encode_links(deployment.links),
            "settings": encode_settings(deployment),
            "subscriptions": {},
            "plan": None if self.plan is None else codec.encode_plan(self.plan),
            "contexts": dict(self.contexts),
            "identity": self.identity.to_document(),
        }
        return codec.dumps(document)

    @classmethod
    def from_bytes(cls, data: bytes, where: str | None = None) -> Snapshot:
        """The inverse of `to_bytes`; `where` names the message that the bytes are from, in case they are none."""
        try:
            return cls.from_json(_unpacked(data))
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:  # Arrow's errors are among them
            raise SnapshotError(
                f"this is not a revision of the catalog: {error!r}",
                where=where,
                hint="restore the NATS store from a backup, or start with `headgate up --accept-loss`",
            ) from error

    @classmethod
    def from_json(cls, text: str | bytes) -> Snapshot:
        """The inverse of `to_json`."""
        document = json.loads(text)
        plan = None if document["plan"] is None else codec.decode_plan(document["plan"])
        subscriptions = document["subscriptions"]
        deployment = Deployment(
            streams={name: codec.decode_stream(name, found) for name, found in document["streams"].items()},
            sites={name: codec.decode_site(name, found) for name, found in document["sites"].items()},
            links=codec.decode_links(document["links"]),
            subscriptions={name: codec.decode_subscription(name, found[2]) for name, found in subscriptions.items()},
            plan=plan,
            **decode_settings(document["settings"]),
        )
        return cls(
            revision=document["revision"],
            deployment=deployment,
            plan=plan,
            subscription_ids={name: found[0] for name, found in subscriptions.items()},
            class_ids={name: found[1] for name, found in subscriptions.items()},
            contexts=document.get("contexts", {}),
            identity=Identity.of(document.get("identity", {})),
        )


class SnapshotWriter:
    """Writes one snapshot after the other; the text of a subscription that did not change is not made again."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[Subscription, str]] = {}

    def to_json(self, snapshot: Snapshot) -> str:
        """The one JSON text of a snapshot."""
        texts: dict[str, tuple[Subscription, str]] = {}
        parts = []
        ids, classes = snapshot.subscription_ids, snapshot.class_ids
        for name, found in sorted(snapshot.deployment.subscriptions.items()):
            known = self._texts.get(name)
            if known is None or known[0] is not found:
                known = (found, codec.dumps(codec.encode_subscription(found)))
            texts[name] = known
            parts.append(f"{codec.dumps(name)}:[{ids[name]},{classes[name]},{known[1]}]")
        self._texts = texts
        rest = snapshot._rest()  # noqa: SLF001 # the writer is the snapshot's own
        assert rest.endswith(_NONE)
        return f"{rest[: -len(_NONE)]}{_NONE[:-2]}{','.join(parts)}}}}}"

    def to_bytes(self, snapshot: Snapshot) -> bytes:
        """The compressed form in which a snapshot is published."""
        text = self.to_json(snapshot).encode()
        packed: bytes = pa.compress(text, codec="zstd", asbytes=True)
        return len(text).to_bytes(4, "little") + packed


def _unpacked(data: bytes) -> bytes:
    """The text of published bytes; a size that is damaged is refused before it is allocated."""
    size = int.from_bytes(data[:4], "little")
    if size > _MOST * len(data):
        raise ValueError(f"{len(data)} bytes cannot hold {size}")
    text: bytes = pa.decompress(data[4:], decompressed_size=size, codec="zstd", asbytes=True)
    return text


def cut_snapshot(data: bytes, most: int) -> list[bytes]:
    """Published bytes as messages of at most so many: the first one alone, or the number of parts and then the parts.

    >>> [len(each) for each in cut_snapshot(bytes(25), 10)], [part_count(each) for each in cut_snapshot(bytes(25), 10)]
    ([8, 10, 10, 5], [3, 0, 0, 0])
    """
    if len(data) <= most:
        return [data]
    parts = [data[start : start + most] for start in range(0, len(data), most)]
    return [_PARTS + len(parts).to_bytes(4, "little"), *parts]


def part_count(first: bytes) -> int:
    """How many parts follow a published message, 0 when it is the snapshot itself."""
    return int.from_bytes(first[4:8], "little") if first[:4] == _PARTS else 0


def encode_settings(deployment: Deployment) -> dict[str, Any]:
    """What a deployment says about itself as a whole: objective, constraints, options."""
    return {
        "objective": deployment.objective,
        "constraints": list(deployment.constraints),
        "options": dict(deployment.options),
    }


def decode_settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `encode_settings`, as arguments of a `Deployment`."""
    return {**document, "constraints": tuple(document.get("constraints", ()))}
