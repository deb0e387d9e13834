"""Every kind of file in a state directory: what it is, whether it belongs into a backup, and what its loss means.

`docs/restoring.md` has what was seen when each of them was damaged (`headgate_studies.testing.damage`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class StoredKind:
    """One kind of file: a name for people, and a pattern of paths in which `*` is a part and `**` any number of them.

    `backed_up` is whether a backup has it. Of the others, all is made again at the next start, or is for reading only.
    """

    name: str
    pattern: str
    backed_up: bool = True

    def matches(self, path: str) -> bool:
        """Whether a path in the state directory is one of this kind."""
        return _compiled(self.pattern).fullmatch(path) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = [re.escape(part) for part in re.split(r"(\*\*|\*)", pattern)]
    words = {re.escape("**"): ".*", re.escape("*"): "[^/]*"}
    return re.compile("".join(words.get(part, part) for part in parts))


_LOG: Final = "nats/data/jetstream/*/streams/*"
KINDS: Final = (
    StoredKind("the audit", "audit.jsonl"),
    StoredKind("the catalog", "catalog.db"),
    StoredKind("the catalog's journal", "catalog.db-wal"),
    StoredKind("the catalog's shared memory", "catalog.db-shm", backed_up=False),
    StoredKind("a catalog that was set aside", "catalog.db.*"),
    StoredKind("whose a checkpoint is", "checkpoints/*/identity.json"),
    StoredKind("the lineage of batches", "checkpoints/*/lineage*"),
    StoredKind("how many rows were committed", "checkpoints/*/committed*"),
    StoredKind("an index for workers", "checkpoints/*/indexes/**"),
    StoredKind("Spark's checkpoint", "checkpoints/*/spark/**"),
    StoredKind("a checkpoint that was set aside", "checkpoints/.aside/**"),
    StoredKind("the keys", "nats/keys.json"),
    StoredKind("the operator's credentials", "nats/operator.creds"),
    StoredKind("the server's credentials", "nats/system.creds"),
    StoredKind("the job's credentials", "nats/job-*.creds"),
    StoredKind("the credentials of the bridge to MQTT", "nats/bridge.creds"),
    StoredKind("the password of the bridge to MQTT", "nats/bridge.mqtt"),
    StoredKind("the users", "nats/users.json"),
    StoredKind("the copy of the users", "nats/users-copy.json"),
    StoredKind("the devices", "nats/devices.json"),
    StoredKind("the roles of sites", "nats/roles.json"),
    StoredKind("an account as the server was told", "nats/accounts/*"),
    StoredKind("the description of a log", f"{_LOG}/meta.inf"),
    StoredKind("the checksum of a description", f"{_LOG}/meta.sum"),
    StoredKind("messages of a log", f"{_LOG}/msgs/*.blk"),
    StoredKind("the index of a log", f"{_LOG}/msgs/index.db"),
    StoredKind("the server's notes on a log", f"{_LOG}/**"),
    StoredKind("a copy of a description", "nats/descriptions/**"),
    StoredKind("files of a log that was given up", "nats/damaged/**"),
    StoredKind("where the server is", "nats/port.json", backed_up=False),
    StoredKind("what the server is told", "nats/server.conf", backed_up=False),
    StoredKind("what the server said", "nats/server.log", backed_up=False),
    StoredKind("who holds the roles", "nats/roles.json.lock", backed_up=False),
    StoredKind("who holds the directory", "lock", backed_up=False),
    StoredKind("what the job is told", "job.json", backed_up=False),
    StoredKind("what a named job is told", "job-*.json", backed_up=False),
    StoredKind("what the job said", "job.log", backed_up=False),
    StoredKind("what a named job said", "job-*.log", backed_up=False),
    StoredKind("the token of the HTTP API", "http/token"),
    StoredKind("the token before", "http/token-before"),
    StoredKind("where the HTTP API is", "http/address", backed_up=False),
    StoredKind("the limits of users, for gateways", "http/limits", backed_up=False),
    StoredKind("what the HTTP API said", "http/http.log", backed_up=False),
    StoredKind("the secret of a Spark cluster", "spark-cluster.conf"),
    StoredKind("the format of the directory", "format"),
    StoredKind("that this is a demonstration", "demo"),
    StoredKind("which site a host is", "site.json"),
    StoredKind("the credentials of a host", "site.creds"),
    StoredKind("an invitation that is being accepted", "invitation.creds", backed_up=False),
    StoredKind("which streams a host holds rows of", "nats/incarnations.json"),
    StoredKind("how far the logs of a host were", "nats/seen.json"),
    StoredKind("the wrapper of Java", "java/**", backed_up=False),
    StoredKind("what Spark has under way", "spark/**", backed_up=False),
    StoredKind("a file that is being replaced", "**.new", backed_up=False),
)
"""The first kind that matches a path is the one it is of."""
_SITE: Final = re.compile(r"sites/[^/]+/(?=nats/)")


def kind_of(path: str) -> StoredKind | None:
    """The kind of a file, by its path in the state directory; None for one that nobody has thought of.

    The server of a site that is a host of its own has the same files as that at home.

    >>> kind_of("nats/keys.json").name, kind_of("nats/data/jetstream/A/streams/HG_STATE/msgs/12.blk").name
    ('the keys', 'messages of a log')
    >>> kind_of("sites/oslo/nats/keys.json").name, kind_of("site.json").name
    ('the keys', 'which site a host is')
    >>> kind_of("something")
    """
    place = _SITE.sub("", path, count=1)
    return next((kind for kind in KINDS if kind.matches(place)), None)


def unknown_files(state_dir: Path) -> list[str]:
    """The files of a state directory that are of no kind."""
    paths = (path.relative_to(state_dir).as_posix() for path in state_dir.rglob("*") if path.is_file())
    return sorted(path for path in paths if kind_of(path) is None)
