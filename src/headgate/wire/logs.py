"""The logs of a deployment: their names, subjects and limits, in one table.

JetStream never deletes what is not accounted for: logs refuse new messages when they are full (`discard: new`), have
no maximum age, and are purged by their owner after accounting, which always keeps the last message of a subject. The
exceptions are values of which only the latest counts (`state`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_GIB: Final = 1 << 30
ID_WINDOW_S: Final = 7200.0
"""How long the server knows the ids of messages that senders publish into a stream."""


@dataclass(frozen=True, slots=True)
class Log:
    """One JetStream stream. `latest_only` keeps one message per subject and lets a newer one replace it.

    `id_window_s` is how long the server remembers message ids, to store a message that is sent again only once.
    `news` are subjects whose stored messages the server announces, without their content, and where it does so.
    """

    name: str
    subjects: tuple[str, ...]
    max_bytes: int
    max_per_subject: int = -1
    latest_only: bool = False
    id_window_s: float = 0.1
    news: tuple[str, str] | None = None


@lru_cache(maxsize=4096)
def _token(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be part of a subject: use letters, digits, '-' and '_'")
    return name


@lru_cache(maxsize=64)
def _state(namespace: str, max_bytes: int) -> Log:
    kinds = ("catalog", "pin", "ack", "stats", "ledger", "context", "mark", "hold", "quarantine", "door")
    subjects = tuple(f"{namespace}.{kind}.>" for kind in kinds)
    return Log(f"{namespace.upper()}_STATE", subjects, max_bytes, max_per_subject=1, latest_only=True)


@lru_cache(maxsize=4096)
def _log(
    namespace: str, kind: str, name: str, pattern: str, max_bytes: int, max_per_subject: int = -1, told: str = ""
) -> Log:
    """A log of one stream or site; the same ones are asked for again and again. `told` is announced of it."""
    subject = f"{namespace}.{kind}.{name}.{pattern}"
    news = (f"{namespace}.{kind}.{name}.{told}", f"{namespace}.new.{kind}.{name}.{told}") if told else None
    named = f"{namespace.upper()}_{kind.upper()}_{_token(name)}"
    return Log(named, (subject,), max_bytes, max_per_subject, news=news)


def inbox_token(subscription: int, stay: int = 0) -> str:
    """A subscription's stay as part of a subject.

    >>> inbox_token(12), inbox_token(12, 3)
    ('12', '12-3')
    """
    return f"{subscription}-{stay}" if stay else str(subscription)


@dataclass(frozen=True, slots=True)
class Logs:
    """Names of logs and subjects under one namespace, so that deployments can share a NATS account.

    | log | subjects | written by | holds |
    |---|---|---|---|
    | root | `root.STREAM.part`, `.dead`, `.commit` | the stream's Spark job | staged parts, dead letters, manifests |
    | | `root.STREAM.files` | the stream's Spark job | files that a source of files has given |
    | | `root.STREAM.memory` | the stream's Spark job | what derived columns remember of earlier rows |
    | | `root.STREAM.context` | the service | updates of contexts, in one order with what is committed |
    | input | `in.STREAM` | publishers | rows published into a stream |
    | | `in.STREAM.carried` | the root's relay | parcels of what was published at sites |
    | outbox | `outbox.SITE.STREAM.rows`, `.unsent` | publishers | what was published at a site, until the root has it |
    | site | `site.SITE.in.STREAM.PARENT`, `.held.OUTPUT` | the parent; the site | blocks; decisions not yet sent |
    | inbox | `inbox.SITE.ID`, `inbox.SITE.ID-STAY` | the site | what a subscription gets |
    | state | `catalog.head`, `pin.STREAM`, `ack.ID`, `stats.SITE`, `ledger.STREAM` | each owner | latest values |
    | | `catalog.runs`, `catalog.filed` | the service | its starts; the deployment file as it was applied |
    | | `catalog.purging`, `catalog.oldest`, `hold.SITE` | the service; the relay | which tables go, and which may not |
    | | `quarantine.PROCESS` | every process | messages that it could not read |
    | tables | `tables.REVISION` | the catalog | snapshots that routed blocks |
    """

    namespace: str = "hg"
    inbox_messages: int = 4096
    root_bytes: int = 2 * _GIB
    max_bytes: int = _GIB // 2
    tables_bytes: int = _GIB // 2
    state_bytes: int = _GIB // 2

    def __post_init__(self) -> None:
        _token(self.namespace)

    @property
    def everything(self) -> str:
        """All subjects of this namespace."""
        return self._subject(">")

    def _name(self, *parts: str) -> str:
        return "_".join([self.namespace.upper(), *(part.upper() for part in parts[:1]), *map(_token, parts[1:])])

    def _subject(self, *parts: str) -> str:
        return ".".join([self.namespace, *parts])

    def root(self, stream: str) -> Log:
        """The root log of a stream."""
        return _log(self.namespace, "root", stream, "*", self.root_bytes, told="commit")

    def input(self, stream: str) -> Log:
        """Rows that clients published into a stream, until its job has committed them."""
        subjects = (self.published(stream), self.unsent(stream), self.carried(stream))
        return Log(self._name("in", stream), subjects, self.root_bytes, id_window_s=ID_WINDOW_S)

    def site(self, site: str) -> Log:
        """What a site has received and not yet passed on to everybody below it."""
        return _log(self.namespace, "site", site, ">", self.max_bytes, told="in.>")

    def inbox(self, site: str) -> Log:
        """What the subscriptions of a site get. A full inbox refuses, and concerns nobody else."""
        return _log(self.namespace, "inbox", site, "*", self.max_bytes, self.inbox_messages)

    def outbox(self, site: str) -> Log:
        """What was published at a site and is not yet at the root of its stream."""
        found = _log(self.namespace, "outbox", site, "*.*", self.max_bytes, told=">")
        return replace(found, id_window_s=ID_WINDOW_S)

    @property
    def state(self) -> Log:
        """Values of which only the latest counts. When it is full, it refuses: none of them is deleted for another."""
        return _state(self.namespace, self.state_bytes)

    @property
    def tables(self) -> Log:
        """Snapshots of the catalog by revision."""
        return Log(self._name("tables"), (self._subject("tables", "*"),), self.tables_bytes, max_per_subject=1)

    def part(self, stream: str) -> str:
        """Staged parts."""
        return self._subject("root", stream, "part")

    def dead(self, stream: str) -> str:
        """Dead letters."""
        return self._subject("root", stream, "dead")

    def commit(self, stream: str) -> str:
        """Manifests."""
        return self._subject("root", stream, "commit")

    def files(self, stream: str) -> str:
        """Lists of the files that a source of files has given."""
        return self._subject("root", stream, "files")

    def memory(self, stream: str) -> str:
        """What derived columns remember of earlier rows."""
        return self._subject("root", stream, "memory")

    def context(self, stream: str) -> str:
        """Updates of the contexts of a stream's classes."""
        return self._subject("root", stream, "context")

    def published(self, stream: str) -> str:
        """Rows that clients publish."""
        return self._subject("in", _token(stream))

    @property
    def published_any(self) -> str:
        """Rows that clients publish, into any stream."""
        return self._subject("in", "*")

    def unsent(self, stream: str) -> str:
        """What senders gave up before it was published."""
        return self._subject("in", _token(stream), "unsent")

    def carried(self, stream: str) -> str:
        """What was published at sites, as the root has taken it."""
        return self._subject("in", _token(stream), "carried")

    def published_at(self, site: str, stream: str) -> str:
        """Rows that clients publish at a site; `*` is any site, or any stream."""
        return self._subject("outbox", *(each if each == "*" else _token(each) for each in (site, stream)), "rows")

    def unsent_at(self, site: str, stream: str) -> str:
        """What senders at a site gave up before it was published; `*` is any site, or any stream."""
        return self._subject("outbox", *(each if each == "*" else _token(each) for each in (site, stream)), "unsent")

    @property
    def outboxes(self) -> str:
        """What the subjects of all outboxes begin with."""
        return self._subject("outbox", "")

    def outbox_of(self, site: str, stream: str) -> str:
        """Everything that was published at a site into a stream; `*` is any stream."""
        return self._subject("outbox", _token(site), stream if stream == "*" else _token(stream), "*")

    def door(self, stream: str, slot: int | str) -> str:
        """Some of the message ids that the root of a stream remembers; `*` is all of them."""
        return self._subject("door", _token(stream), str(slot))

    def upward(self, site: str) -> str:
        """Where a site takes parcels that go up through it (a service, not a log)."""
        return self._subject("up", _token(site))

    def upward_from(self, site: str, asker: str) -> str:
        """Where it takes those of one site below it: the subject says which; `*` is any."""
        return self._subject("up", _token(site), asker if asker == "*" else _token(asker))

    def link(self, parent: str, child: str, stream: str) -> str:
        """Blocks of a stream from a parent, in the child's site log."""
        return self._subject("site", _token(child), "in", _token(stream), _token(parent))

    def links_into(self, child: str) -> str:
        """Blocks from any parent."""
        return self._subject("site", _token(child), "in", ">")

    def links_of(self, child: str, stream: str) -> str:
        """Blocks of a stream from any parent."""
        return self._subject("site", _token(child), "in", _token(stream), "*")

    def held_at(self, site: str) -> str:
        """Decisions about any output of a site."""
        return self._subject("site", _token(site), "held", "*")

    def inboxes_at(self, site: str) -> str:
        """The inboxes of all subscriptions at a site."""
        return self._subject("inbox", _token(site), "*")

    def held(self, site: str, output: str) -> str:
        """Decisions about an output, by its token, that cannot be published yet."""
        return self._subject("site", _token(site), "held", output)

    def delivery(self, site: str, subscription: int, stay: int = 0) -> str:
        """The inbox of a subscription: each of its stays at a site has one of its own."""
        return self._subject("inbox", _token(site), inbox_token(subscription, stay))

    def ack(self, subscription: int) -> str:
        """What a subscriber has acknowledged."""
        return self._subject("ack", str(subscription))

    def pin(self, stream: str) -> str:
        """The version that the stream's current micro-batch is pinned to."""
        return self._subject("pin", _token(stream))

    @property
    def head(self) -> str:
        """The newest published revision of the catalog."""
        return self._subject("catalog", "head")

    @property
    def runs(self) -> str:
        """The starts of the service, by which a position from another past is recognised."""
        return self._subject("catalog", "runs")

    @property
    def filed(self) -> str:
        """The deployment file as it was last applied, from which a lost catalog is rebuilt."""
        return self._subject("catalog", "filed")

    @property
    def audit(self) -> str:
        """The number and hash of the newest record of the audit."""
        return self._subject("catalog", "audit")

    @property
    def purging(self) -> str:
        """The revisions that are about to be deleted from the tables: who begins to name one has to look here after."""
        return self._subject("catalog", "purging")

    @property
    def oldest(self) -> str:
        """By stream, the place in its root log before which nothing need be kept: the tables have no room for it."""
        return self._subject("catalog", "oldest")

    def past(self, stream: str) -> str:
        """Up to where a root log was forgotten: nothing there is owed to any site that does not have it."""
        return self._subject("catalog", "past", _token(stream))

    def hold(self, site: str) -> str:
        """The revisions that a relay may still publish although its site log does not name them."""
        return self._subject("hold", _token(site))

    def table(self, revision: int) -> str:
        """The snapshot of a revision."""
        return self._subject("tables", str(revision))

    @property
    def any_table(self) -> str:
        """The snapshots of all revisions, and their parts."""
        return self._subject("tables", "*")

    def table_part(self, revision: int, number: int) -> str:
        """A part of the snapshot of a revision that is larger than a message, counted from 1."""
        return self._subject("tables", f"{revision}-{number}")

    @property
    def any_stats(self) -> str:
        """What all subjects of measured values begin with."""
        return self._subject("stats", "")

    def stats(self, kind: str, name: str) -> str:
        """What a relay or a job last measured."""
        return self._subject("stats", kind, _token(name))

    def job_stats(self, job: str) -> str:
        """What a Spark job last said of itself; the one without a name is `_` among the streams."""
        return self.stats("driver", job) if job else self.stats("job", "_")

    def mark(self, site: str, stream: str) -> str:
        """How far a root's relay has passed on everything, so that a restart need not read it again."""
        return self._subject("mark", _token(site), _token(stream))

    def mark_anywhere(self, stream: str) -> str:
        """The marks of a stream at any site."""
        return self._subject("mark", "*", _token(stream))

    def ledger(self, stream: str) -> str:
        """The root's side of the ledger, folded up to a mark."""
        return self._subject("ledger", _token(stream))

    def quarantine(self, process: str) -> str:
        """What a process has set aside because it could not be read; `*` stands for any process."""
        return self._subject("quarantine", process if process == "*" else _token(process))

    def repair(self, site: str) -> str:
        """Where a site answers requests for ranges that a child is missing (a service, not a log)."""
        return self._subject("repair", _token(site))

    def asked_at(self, site: str, asker: str) -> str:
        """Where a site answers the same requests of another site: the subject says who asks; `*` is any."""
        return self._subject("repair", _token(site), asker if asker == "*" else _token(asker))

    def joined(self, site: str) -> str:
        """Where home takes the host of a site in, or lets it go (a service, not a log); `*` is any site."""
        return self._subject("join", site if site == "*" else _token(site))

    def hosted(self, site: str) -> str:
        """Where the relay of a site with a server of its own reads that server's logs for home (a service)."""
        return self._subject("host", _token(site))

    def entered(self, site: str, asker: str) -> str:
        """Where it lets another site in, to read its link there (a service); `*` is any."""
        return self._subject("host", _token(site), asker if asker == "*" else _token(asker))

    def is_hosted(self, name: str) -> bool:
        """Whether a log, or a subject, is one of those that a site with a server of its own has there.

        >>> logs = Logs()
        >>> [logs.is_hosted(name) for name in ("HG_INBOX_oslo", "hg.site.oslo.held.x", "HG_STATE", "hg.root.s.part")]
        [True, True, False, False]
        """
        named, subject = f"{self.namespace.upper()}_", f"{self.namespace}."
        kinds = ("site", "inbox", "outbox")
        return name.startswith(
            (*(f"{named}{each.upper()}_" for each in kinds), *(f"{subject}{each}." for each in kinds))
        )

    @property
    def hosts(self) -> str:
        """The sites that have a server of their own."""
        return self._subject("catalog", "hosts")

    def tune(self, site: str) -> str:
        """Where a site's part of the tuner takes letters of other sites (a service, not a log)."""
        return self._subject("tune", _token(site))

    def tuned_by(self, site: str, asker: str) -> str:
        """Where it takes letters of one other site: the subject says who has sent them; `*` is any."""
        return self._subject("tune", _token(site), asker if asker == "*" else _token(asker))

    def tuner(self, site: str) -> str:
        """Where home answers a site's part of the tuner (a service, not a log); `*` is any site."""
        return self._subject("tuner", site if site == "*" else _token(site))

    def grid(self, site: str, asker: str) -> str:
        """Where a site that serves parts of gridded streams is asked (a service, not a log); `*` is any asker.

        The subject says who asks: another site, or `readers`, who have no name of their own there.
        """
        return self._subject("grid", _token(site), asker if asker == "*" else _token(asker))

    def linked(self, parent: str, child: str, stream: str) -> str:
        """Where home reads for a parent what it has sent to a child (a service, not a log); `*` is any."""
        return self._subject("linked", *(each if each == "*" else _token(each) for each in (child, stream, parent)))

    def news(self, subject: str) -> str:
        """Where sites hear that something was stored under a subject of a root log or a site log."""
        return f"{self.namespace}.new.{subject.removeprefix(f'{self.namespace}.')}"

    def control(self, verb: str) -> str:
        """Where the running service answers requests of operators (a service, not a log)."""
        return self._subject("control", _token(verb))

    def asked_by(self, user: str, verb: str = ">") -> str:
        """Where it answers requests of one user; `*` stands for any user, `>` for any request."""
        return self._subject("as", user if user == "*" else _token(user), verb if verb == ">" else _token(verb))
