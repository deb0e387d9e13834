"""A snapshot: the whole catalog at one revision, as relays and Spark workers receive it.

A revision is published whole, or as what has changed since another one (`SnapshotChange`), whichever costs less.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.model import Deployment, Plan, SparkJob, Subscription
from headgate.wire import codec
from headgate.wire.identity import Identity

# In place of a size, which is never so large: the snapshot is in parts; it is a change, and the next bytes say of what.
_PARTS: Final = b"\xff\xff\xff\xff"
_CHANGE: Final = b"\xfe\xff\xff\xff"
_BASE_BYTES: Final = 12
_MOST_CHANGES: Final = 128  # that follow each other, before the next revision is whole
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
    def from_bytes(cls, data: bytes) -> Snapshot:
        """The inverse of `to_bytes`."""
        try:
            return cls.from_json(_unpacked(data))
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:  # Arrow's errors are among them
            raise SnapshotError(
                f"this is not a revision of the catalog: {error!r}",
                hint="restore the NATS store from a backup, or start with `headgate up --accept-loss`",
            ) from error

    @classmethod
    def from_json(cls, text: str | bytes) -> Snapshot:
        """The inverse of `to_json`."""
        return cls.from_document(json.loads(text))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Snapshot:
        """A snapshot of its JSON document."""
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


@dataclass(frozen=True, slots=True)
class SnapshotChange:
    """A revision as what has changed since another one.

    Attributes:
        base: The revision that it is a change of.
        part: The revision, of whose subscriptions only those that are new or not as they were are there.
        ended: The subscriptions of `base` that are no more, by name.
        mark: The mark of `base`: after a restore, another revision may have its number.
    """

    base: int
    part: Snapshot
    ended: tuple[str, ...] = ()
    mark: str = ""

    @classmethod
    def between(cls, before: Snapshot, after: Snapshot) -> SnapshotChange:
        """What has changed from one revision to another."""
        known, new = before.deployment.subscriptions, after.deployment.subscriptions
        ids, new_ids = before.subscription_ids, after.subscription_ids
        classes, new_classes = before.class_ids, after.class_ids
        changed = {
            name: found
            for name, found in new.items()
            if ids.get(name) != new_ids[name]
            or classes[name] != new_classes[name]
            or (known[name] is not found and known[name] != found)
        }
        part = replace(
            after,
            deployment=replace(after.deployment, subscriptions=changed),
            subscription_ids={name: new_ids[name] for name in changed},
            class_ids={name: new_classes[name] for name in changed},
        )
        return cls(before.revision, part, tuple(sorted(known.keys() - new.keys())), before.identity.mark)

    @classmethod
    def from_bytes(cls, data: bytes) -> SnapshotChange:
        """The inverse of what a `SnapshotWriter` makes; any error says that the bytes are something else."""
        base = base_revision(data)
        if base is None:
            raise ValueError("it is no change of a revision")
        document = json.loads(_unpacked(data[_BASE_BYTES:]))
        return cls(base, Snapshot.from_document(document["part"]), tuple(document["ended"]), str(document["mark"]))


def apply_changes(base: Snapshot, changes: Sequence[SnapshotChange]) -> Snapshot:
    """The revision that some changes, each of the one before it, make of a snapshot."""
    subscriptions = dict(base.deployment.subscriptions)
    ids, classes = dict(base.subscription_ids), dict(base.class_ids)
    added = False
    for change in changes:
        for name in change.ended:
            del subscriptions[name], ids[name], classes[name]
        added = added or not change.part.subscription_ids.keys() <= ids.keys()
        subscriptions |= change.part.deployment.subscriptions
        ids |= change.part.subscription_ids
        classes |= change.part.class_ids
    if added:
        subscriptions = dict(sorted(subscriptions.items()))  # as a whole one has them
    last = changes[-1].part
    deployment = replace(last.deployment, subscriptions=subscriptions)
    return replace(last, deployment=deployment, subscription_ids=ids, class_ids=classes)


class SnapshotWriter:
    """Writes one snapshot after the other, whole or as what has changed since the one that was published last.

    The text of a subscription that did not change is not made again. A revision is whole where there is none before it,
    where a change would be half as large, where the changes since the last whole one have become as large as that, and
    after many of them: what somebody reads who begins is at most twice the catalog, and what is written grows with
    what changes.
    """

    def __init__(self) -> None:
        self._texts: dict[str, tuple[Subscription, str]] = {}
        self._last: tuple[Snapshot | None, bytes] = (None, b"")
        self._published: Snapshot | None = None
        self._whole_bytes = 0
        self._changes: list[int] = []

    def to_json(self, snapshot: Snapshot) -> str:
        """The one JSON text of a snapshot."""
        known = self._texts
        self._texts = {}
        return self._text(snapshot, known)

    def _text(self, snapshot: Snapshot, known: Mapping[str, tuple[Subscription, str]]) -> str:
        parts = []
        ids, classes = snapshot.subscription_ids, snapshot.class_ids
        for name, found in sorted(snapshot.deployment.subscriptions.items()):
            text = known.get(name)
            if text is None or text[0] is not found:
                text = (found, codec.dumps(codec.encode_subscription(found)))
            self._texts[name] = text
            parts.append(f"{codec.dumps(name)}:[{ids[name]},{classes[name]},{text[1]}]")
        rest = snapshot._rest()  # noqa: SLF001 # the writer is the snapshot's own
        assert rest.endswith(_NONE)
        return f"{rest[: -len(_NONE)]}{_NONE[:-2]}{','.join(parts)}}}}}"

    def to_bytes(self, snapshot: Snapshot) -> bytes:
        """The compressed form in which a whole snapshot is published."""
        return _packed(self.to_json(snapshot))

    def publication(self, snapshot: Snapshot) -> bytes:
        """What is published for a revision; asked again for the same one, it is at hand."""
        if self._last[0] is not snapshot:
            self._last = (snapshot, self._change(snapshot) or self.to_bytes(snapshot))
        return self._last[1]

    def published(self, snapshot: Snapshot) -> None:
        """The revision that was asked for last is in the log: the next one may be a change of it."""
        data = self.publication(snapshot)
        if base_revision(data) is None:
            self._whole_bytes, self._changes = len(data), []
        else:
            self._changes.append(len(data))
        self._published = snapshot

    def _change(self, snapshot: Snapshot) -> bytes | None:
        """The bytes of a change of what was published last, None where a whole one is better."""
        before = self._published
        if before is None or before.revision >= snapshot.revision or len(self._changes) >= _MOST_CHANGES:
            return None
        change = SnapshotChange.between(before, snapshot)
        if 2 * len(change.part.subscription_ids) > len(snapshot.subscription_ids):
            return None
        for name in change.ended:
            self._texts.pop(name, None)
        ended, mark = codec.dumps(list(change.ended)), codec.dumps(change.mark)
        text = f'{{"ended":{ended},"mark":{mark},"part":{self._text(change.part, self._texts)}}}'
        data = _CHANGE + change.base.to_bytes(_BASE_BYTES - len(_CHANGE), "little") + _packed(text)
        worth = 2 * len(data) <= self._whole_bytes and sum(self._changes) + len(data) <= self._whole_bytes
        return data if worth else None


def base_revision(first: bytes) -> int | None:
    """The revision that a published message is a change of, None when it is whole."""
    return int.from_bytes(first[len(_CHANGE) : _BASE_BYTES], "little") if first[:4] == _CHANGE else None


def _packed(text: str) -> bytes:
    data = text.encode()
    packed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return len(data).to_bytes(4, "little") + packed


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
    head = data[: _head_bytes(data)]
    parts = [data[start : start + most] for start in range(len(head), len(data), most)]
    return [head + _PARTS + len(parts).to_bytes(4, "little"), *parts]


def part_count(first: bytes) -> int:
    """How many parts follow a published message, 0 when it is all there is."""
    rest = first[_head_bytes(first) :]
    return int.from_bytes(rest[4:8], "little") if rest[:4] == _PARTS else 0


def join_parts(first: bytes, parts: Sequence[bytes]) -> bytes:
    """The inverse of `cut_snapshot`."""
    return first[: _head_bytes(first)] + b"".join(parts) if parts else first


def _head_bytes(first: bytes) -> int:
    return 0 if base_revision(first) is None else _BASE_BYTES


def encode_settings(deployment: Deployment) -> dict[str, Any]:
    """What a deployment says about itself as a whole: objective, constraints, options, and jobs where it has some."""
    jobs = {name: job.document for name, job in deployment.jobs.items()}
    return {
        "objective": deployment.objective,
        "constraints": list(deployment.constraints),
        "options": dict(deployment.options),
        **({"jobs": jobs} if jobs else {}),
    }


def decode_settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `encode_settings`, as arguments of a `Deployment`."""
    jobs = {name: SparkJob.of(name, each) for name, each in document.get("jobs", {}).items()}
    return {**document, "constraints": tuple(document.get("constraints", ())), "jobs": jobs}
