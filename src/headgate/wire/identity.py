"""Who a deployment is, and which life of a stream its rows belong to.

A deployment gets its id once, when its catalog is made. A stream gets an *incarnation* when its root log is made: the
sequence numbers of one incarnation never mean anything in another. Both are written into every log (as JetStream
metadata), the catalog, the checkpoints, the acknowledgements and the position tokens, so that state of different
origin is recognised before anything is read from it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from headgate.wire.record import Count, read_record, write_record

DEPLOYMENT_KEY: Final = "headgate_deployment"
"""The key in a log's metadata under which the deployment's id stands."""
INCARNATION_KEY: Final = "headgate_incarnation"
"""The key in the metadata of a root log and an input log under which the stream's incarnation stands."""


def new_id() -> str:
    """An id that nobody else has: 16 hexadecimal digits."""
    return uuid.uuid4().hex[:16]


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One life of a stream.

    Attributes:
        id: The id of this life.
        number: Counts the lives of the stream from 1.
        replaced: The id of the life before, empty for the first.
        loss: What was accepted as lost when this life began, empty for the first.
        time_ms: When it began, in milliseconds since the epoch.
        before: The largest subscription id at that time: those subscriptions may have lost rows.
    """

    id: str
    number: int = 1
    replaced: str = ""
    loss: str = ""
    time_ms: int = 0
    before: int = 0

    def next(self, loss: str, time_ms: int, before: int) -> Incarnation:
        """The life after this one, which begins because something was lost."""
        return Incarnation(new_id(), self.number + 1, self.id, loss, time_ms, before)

    @property
    def title(self) -> str:
        """Number and id, as messages name an incarnation.

        >>> Incarnation("c0ffee", 2).title
        'incarnation 2 (c0ffee)'
        """
        return f"incarnation {self.number} ({self.id})"


@dataclass(frozen=True)
class Identity:
    """What a snapshot says about its origin.

    Attributes:
        deployment: The id of the deployment.
        mark: A random word made with this revision: two revisions of one number and different marks are different.
        last_subscription: The largest subscription id that was ever given.
        last_class: The largest class id that was ever given.
        incarnations: The incarnation of each stream that has a root log.
    """

    deployment: str = ""
    mark: str = ""
    last_subscription: int = 0
    last_class: int = 0
    incarnations: Mapping[str, Incarnation] = field(default_factory=dict)

    def to_document(self) -> dict[str, Any]:
        """The form in which it stands in a snapshot."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """The inverse of `to_document`."""
        incarnations = {name: Incarnation(**body) for name, body in document.get("incarnations", {}).items()}
        return cls(**{**document, "incarnations": incarnations})


@dataclass(frozen=True, slots=True)
class Run:
    """One start of the service: its id, and by stream the last sequence number that was committed before it.

    A position that was read in a run holds as long as no later run began before it: a run that did was started on
    state from a backup, and gave the numbers up to the position to other rows.
    """

    id: str
    heads: Mapping[str, Count]


def encode_runs(runs: Sequence[Run]) -> bytes:
    """Runs, oldest first, as they are stored."""
    return write_record("runs", runs)


def decode_runs(data: bytes) -> list[Run]:
    """The inverse of `encode_runs`."""
    return read_record("runs", list[Run], data)


def overtaken(run: str, stream: str, mark: int, runs: Sequence[Run], head: int) -> str | None:
    """Why a position that was read in a run does not hold in a deployment with these runs, None when it does.

    `head` is the last sequence number that is committed now.

    >>> runs = [Run("a", {"s": 0}), Run("b", {"s": 350})]
    >>> overtaken("a", "s", 350, runs, 400), overtaken("b", "s", 390, runs, 400)
    (None, None)
    >>> overtaken("a", "s", 480, runs, 600)
    'it lies at 480, and the deployment was started again from a state that ended at 350'
    >>> overtaken("z", "s", 20, runs, 600)
    'it was read in a run (z) that this deployment knows nothing of'
    """
    known = [each.id for each in runs]
    if run not in known:
        return f"it was read in a run ({run}) that this deployment knows nothing of"
    for later in runs[known.index(run) + 1 :]:
        if later.heads.get(stream, 0) < mark:
            ended = later.heads.get(stream, 0)
            return f"it lies at {mark}, and the deployment was started again from a state that ended at {ended}"
    return f"it lies at {mark}, and the stream ends at {head}" if head < mark else None


def joined_runs(one: Sequence[Run], other: Sequence[Run]) -> list[Run] | None:
    """The longer of two histories of one deployment, None when neither goes on from the other.

    >>> a, b, c = (Run(name, {}) for name in "abc")
    >>> joined_runs([a], [a, b]) == [a, b], joined_runs([a, b], []) == [a, b], joined_runs([a, b], [a, c])
    (True, True, None)
    """
    if not other or (one and other[-1].id in {run.id for run in one}):
        return list(one)
    if not one or one[-1].id in {run.id for run in other}:
        return list(other)
    return None
