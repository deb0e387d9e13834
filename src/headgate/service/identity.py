"""Does what is stored fit together? The catalog, the logs in NATS and the checkpoints, compared before a start.

Each of them can be moved away, put back from a backup, or exchanged for another deployment's. What does not fit is a
`Misfit`: it says what is wrong, what to restore, and whether `headgate up --accept-loss` may go on without it. Nothing
here reads or writes; `headgate.service.survey` collects what is compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.errors import HeadgateError
from headgate.fabric import LogState
from headgate.wire.identity import DEPLOYMENT_KEY, INCARNATION_KEY, Identity
from headgate.wire.logs import Logs

_NAMED: Final = 4
ACCEPT: Final = "or accept that rows are lost with `headgate up --accept-loss`"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the directory of a stream's checkpoint says about itself; both empty when it says nothing."""

    deployment: str = ""
    incarnation: str = ""


@dataclass(frozen=True)
class IdentitySurvey:
    """All that is compared.

    Attributes:
        logs: The names of logs and subjects.
        place: Where the catalog is, for messages.
        revision: The newest revision of the catalog.
        identity: What the catalog says about itself.
        witness: The last sequence number that the catalog has seen in each log.
        infos: The logs that are in NATS.
        short: By log, how many of its messages have gone since the last stop, though nothing was done to it.
        published: The newest revision in the tables log, 0 when there is none.
        published_mark: The mark of that revision in NATS.
        known_mark: The mark of the same revision in the catalog, None when the catalog does not keep it.
        unreadable: Why the newest revision in NATS cannot be read, empty when it can.
        apart: Whether the service has run on this catalog without this NATS, and on this NATS without this catalog.
        damaged: By log, the subjects whose last message is there and cannot be read, and cannot be made again.
        committed: The streams whose root log holds a manifest.
        checkpoints: By stream, what its checkpoint directory says; no entry where there is no directory.
    """

    logs: Logs
    place: str
    revision: int
    identity: Identity
    witness: Mapping[str, int]
    infos: Mapping[str, LogState]
    short: Mapping[str, int] = field(default_factory=dict)
    published: int = 0
    published_mark: str = ""
    known_mark: str | None = None
    unreadable: str = ""
    apart: bool = False
    damaged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    committed: frozenset[str] = frozenset()
    checkpoints: Mapping[str, Checkpoint] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Misfit:
    """Something that does not fit.

    `streams` are those whose rows are concerned, None for all. `acceptable` says whether a start may go on without it.
    `checkpoint_only` is set where only a checkpoint is wrong: the logs are kept then. `values` are subjects of the
    state log whose values are given up, and nothing else is.
    """

    text: str
    remedy: str
    streams: frozenset[str] | None = None
    acceptable: bool = True
    checkpoint_only: bool = False
    values: tuple[str, ...] = ()

    @property
    def loses_rows(self) -> bool:
        """Whether going on without it begins streams anew."""
        return not self.checkpoint_only and not self.values


class IdentityError(HeadgateError):
    """What is stored does not fit together, and was left as it is."""

    def __init__(self, misfits: Sequence[Misfit]) -> None:
        self.misfits = tuple(misfits)
        lines = "\n".join(f"- {misfit.text}" for misfit in misfits)
        remedies = dict.fromkeys(misfit.remedy for misfit in misfits)
        accept = [ACCEPT] if all(misfit.acceptable for misfit in misfits) else []
        super().__init__(
            f"what is stored does not fit together, so nothing was started and nothing was changed:\n{lines}\n",
            hint="; ".join([*remedies, *accept]),
        )


def misfits(found: IdentitySurvey) -> list[Misfit]:
    """Everything that does not fit; where the deployments differ, only that, as the rest follows from it."""
    foreign = list(_foreign(found))
    return foreign or [*_catalog(found), *_runs(found), *_damaged(found), *_logs(found), *_checkpoints(found)]


def _foreign(found: IdentitySurvey) -> Iterator[Misfit]:
    """Logs of another deployment."""
    by_owner: dict[str, list[str]] = {}
    for name, info in sorted(found.infos.items()):
        owner = info.marks.get(DEPLOYMENT_KEY, "")
        if owner != found.identity.deployment:
            by_owner.setdefault(owner, []).append(name)
    for owner, names in by_owner.items():
        whose = f"of the deployment {owner}" if owner else "of no known deployment"
        where = f"under the namespace {found.logs.namespace!r}"
        if found.revision == 0 and owner:
            yield Misfit(
                f"NATS holds logs {whose} {where} ({_some(names)}), and the catalog at {found.place} is empty",
                "restore the catalog, or rebuild it from NATS with `headgate up --rebuild-catalog`; if this is to be "
                "another deployment, give it a --namespace of its own",
                acceptable=False,
            )
        else:
            yield Misfit(
                f"NATS holds logs {whose} {where} ({_some(names)}), and the catalog at {found.place} is that of the "
                f"deployment {found.identity.deployment}",
                "put the NATS store and the catalog back that belong together, or give this deployment a --namespace "
                "of its own",
                acceptable=False,
            )


def _catalog(found: IdentitySurvey) -> Iterator[Misfit]:
    """A catalog that is behind what was published, or is another one since."""
    restore = "restore the catalog, or rebuild it from NATS with `headgate up --rebuild-catalog`"
    if found.unreadable:
        text = f"the newest revision of the catalog in NATS cannot be read: {found.unreadable}"
        yield Misfit(text, "restore the NATS store")
    elif found.published > found.revision:
        yield Misfit(
            f"the catalog at {found.place} is at revision {found.revision}, and revision {found.published} is in force "
            f"in NATS: the catalog is older",
            restore,
            acceptable=False,
        )
    elif found.known_mark is not None and found.published and found.published_mark != found.known_mark:
        yield Misfit(
            f"revision {found.published} of the catalog at {found.place} is not the one that is in NATS: both were "
            "changed since they were last together",
            restore,
            acceptable=False,
        )


def _runs(found: IdentitySurvey) -> Iterator[Misfit]:
    """A catalog and a NATS store that were both used without the other."""
    if found.apart:
        yield Misfit(
            f"the catalog at {found.place} and the NATS store were each started without the other since they were last "
            "together",
            "restore the NATS store and the catalog that belong together",
        )


def _damaged(found: IdentitySurvey) -> Iterator[Misfit]:
    """Messages that the server found to be damaged."""
    for name, info in sorted(found.infos.items()):
        if info.lost:
            yield Misfit(
                f"the log {name} is damaged: the server lost its messages {_some([str(each) for each in info.lost])}",
                "restore the NATS store",
                _concerned(found, name),
            )
    for name, subjects in sorted(found.damaged.items()):
        values = subjects if name == found.logs.state.name else ()
        yield Misfit(
            f"the log {name} is damaged: the last message of {_some(subjects)} cannot be read",
            "restore the NATS store",
            _concerned(found, name),
            values=values,
        )


def _logs(found: IdentitySurvey) -> Iterator[Misfit]:
    """Logs that are gone, that end before what was seen of them, or that were made anew."""
    gone = [name for name in found.witness if name not in found.infos]
    for stream in found.identity.incarnations:
        name = found.logs.root(stream).name
        if name not in found.infos and name not in gone:
            gone.append(name)
    if gone and not found.infos:
        where = f"under the namespace {found.logs.namespace!r}"
        yield Misfit(
            f"NATS holds nothing {where}, and the catalog at {found.place} knows {len(gone)} logs of this deployment "
            f"there ({_some(gone)}): the NATS store is gone",
            "restore the NATS store",
        )
        return
    for name in sorted(gone):
        seen = found.witness.get(name)
        what = f"the log {name} is gone" + ("" if seen is None else f"; its last message was {seen:,} or later")
        yield Misfit(what, "restore the NATS store", _concerned(found, name))
    for name, seen in sorted(found.witness.items()):
        info = found.infos.get(name)
        if info is not None and info.last < seen:
            yield Misfit(
                f"the log {name} ends at message {info.last:,}, and has been seen at {seen:,}: it is an older copy",
                "restore the newest NATS store",
                _concerned(found, name),
            )
    for name, missing in sorted(found.short.items()):
        if not _made_good(found.logs, name):
            yield Misfit(
                f"the log {name} has lost {missing:,} messages since the last stop: files of it are damaged or gone",
                "restore the NATS store",
                _concerned(found, name),
            )
    for stream, incarnation in found.identity.incarnations.items():
        info = found.infos.get(found.logs.root(stream).name)
        mark = "" if info is None else info.marks.get(INCARNATION_KEY, "none")
        if info is not None and mark != incarnation.id:
            yield Misfit(
                f"the log {info.name} is of incarnation {mark} of the stream {stream!r}, and the catalog knows "
                f"{incarnation.title}",
                "restore the NATS store and the catalog that belong together",
                frozenset({stream}),
            )


def _made_good(logs: Logs, name: str) -> bool:
    """Whether what a log has lost comes again by itself: from the sites above, or from the catalog."""
    return name == logs.tables.name or name.startswith((logs.site("x").name[:-1], logs.inbox("x").name[:-1]))


def told_losses(found: IdentitySurvey) -> list[str]:
    """What is said about messages that are gone and come again by themselves."""
    return [
        f"the log {name} has lost {missing:,} messages since the last stop, as files are damaged: they come again from "
        + ("the catalog" if name == found.logs.tables.name else "the sites above")
        for name, missing in sorted(found.short.items())
        if _made_good(found.logs, name)
    ]


def _checkpoints(found: IdentitySurvey) -> Iterator[Misfit]:
    """Checkpoints that are gone, or were made for other logs."""
    for stream in found.identity.incarnations:
        if stream not in found.checkpoints and stream in found.committed:
            yield Misfit(
                f"the checkpoint of the stream {stream!r} is gone, and rows of it were committed",
                "restore the checkpoint directory, or read the source from its start with `headgate up --new-lineage`",
                frozenset({stream}),
                checkpoint_only=True,
            )
    for stream, checkpoint in found.checkpoints.items():
        known = found.identity.incarnations.get(stream)
        if known is None and checkpoint.deployment == found.identity.deployment:
            continue  # the stream's log is not made yet: a start was interrupted
        if checkpoint != Checkpoint(found.identity.deployment, "" if known is None else known.id):
            whose = (
                f"of incarnation {checkpoint.incarnation} of deployment {checkpoint.deployment}"
                if checkpoint.deployment
                else "of no known deployment"
            )
            mine = "has no rows of it" if known is None else f"is at {known.title}"
            yield Misfit(
                f"the checkpoint of the stream {stream!r} is {whose}, and the deployment "
                f"{found.identity.deployment} {mine}",
                "restore the checkpoint directory that belongs to it",
                frozenset({stream}),
                checkpoint_only=True,
            )


def _concerned(found: IdentitySurvey, name: str) -> frozenset[str] | None:
    """The streams whose rows are in a log, None for a log that holds something of all."""
    for stream in found.identity.incarnations:
        if name in (found.logs.root(stream).name, found.logs.input(stream).name):
            return frozenset({stream})
    return None


def _some(names: Iterable[str]) -> str:
    """The first few of many names."""
    listed = list(names)
    more = len(listed) - _NAMED
    return ", ".join(listed[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
