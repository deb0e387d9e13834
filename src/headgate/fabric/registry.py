"""The users of an embedded server: a file beside its keys with names, public keys and what each may do; no secrets.

The server is not told of users: their credentials are signed by an account's key. It is told which keys are revoked.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from headgate.diagnostics import FABRIC
from headgate.errors import HeadgateError, nearest
from headgate.fabric.place import write_whole
from headgate.model import EVERYTHING, NOTHING, Grant
from headgate.wire.codec import decode_grant

USER_FILE: Final = "users.json"
COPY_FILE: Final = "users-copy.json"
ANY: Final = "*"
AT: Final = "@"
"""Between a stream and the one site at which a user may publish into it: `readings@paris`."""
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,47}")


class UserError(HeadgateError):
    """A user that cannot be made, is not known, or may not do what was asked for."""


@dataclass(frozen=True, slots=True)
class User:
    """One user: its public key, and the streams that it may subscribe to and publish into (`*` is any).

    It publishes into `STREAM` at its root and at any site, into `STREAM@SITE` at that site only.

    `grants` has the streams of which it may have some rows or columns only.

    `retiring` are keys of before a rotation, each with the time at which it is revoked. Times are in whole seconds.
    `program` is what a program is that runs elsewhere with these credentials: `site NAME`, its relay, or `job`.
    """

    name: str
    key: str
    issued_s: int
    operator: bool = False
    subscribes: tuple[str, ...] = ()
    publishes: tuple[str, ...] = ()
    expires_s: int | None = None
    retiring: Mapping[str, int] = field(default_factory=dict)
    program: str = ""
    grants: Mapping[str, Grant] = field(default_factory=dict)

    @property
    def role(self) -> str:
        """What it is, in words."""
        if self.program:
            return self.program
        if self.operator:
            return "operator"
        found = [word for word, streams in (("subscriber", self.subscribes), ("publisher", self.publishes)) if streams]
        return " and ".join(found)

    def may_subscribe(self, stream: str) -> bool:
        """Whether it may have rows of a stream."""
        return self.operator or bool({stream, ANY} & set(self.subscribes))

    def may_publish(self, stream: str, site: str | None = None) -> bool:
        """Whether it may publish rows into a stream: at its root, or at a site."""
        wanted = {stream, ANY} | (set() if site is None else {f"{stream}{AT}{site}", f"{ANY}{AT}{site}"})
        return self.operator or bool(wanted & set(self.publishes))

    @property
    def published(self) -> frozenset[str]:
        """The streams that it may publish into, wherever that is."""
        return frozenset(each.partition(AT)[0] for each in self.publishes)

    def grant(self, stream: str) -> Grant:
        """What it may have of a stream."""
        return self.grants.get(stream, EVERYTHING) if self.may_subscribe(stream) else NOTHING

    def granted(self, stream: str, grant: Grant) -> User:
        """The user with another grant of a stream."""
        subscribes = self.subscribes if stream in self.subscribes else (*self.subscribes, stream)
        return replace(self, subscribes=subscribes, grants={**self._others(stream), **_part(stream, grant)})

    def without_grant(self, stream: str) -> User:
        """The user without the right to a stream."""
        if stream not in self.subscribes:
            raise UserError(
                f"user {self.name!r} has no grant of {stream!r}",
                hint="grants are of " + (", ".join(self.subscribes) or "nothing"),
            )
        rest = tuple(each for each in self.subscribes if each != stream)
        return replace(self, subscribes=rest, grants=self._others(stream))

    def _others(self, stream: str) -> dict[str, Grant]:
        return {name: each for name, each in self.grants.items() if name != stream}


@dataclass(frozen=True, slots=True)
class Registry:
    """All users by name, and the keys that were revoked, each with the second before which it counts for nothing.

    `out` are sites whose host was put out, each with the second up to which nothing counts that let it in at the
    servers of other sites: there it has other keys.
    """

    users: Mapping[str, User] = field(default_factory=dict)
    revoked: Mapping[str, int] = field(default_factory=dict)
    out: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> Self:
        """The registry of a server, from its copy where the file is damaged or gone; an empty one where there is none.

        Whoever was put out would be let in again by a registry that is lost, so there are two files.
        """
        try:
            return cls.read_file(directory)
        except UserError as error:
            if not (directory / COPY_FILE).exists():
                raise
            found = cls.read_copy(directory)
            FABRIC.warning("%s; its copy is taken", error.args[0] if error.args else error)
            found.write(directory)
            return found

    @classmethod
    def read_file(cls, directory: Path) -> Self:
        """As `read`, without the copy: `UserError` where the file is damaged, or gone although there is a copy."""
        path = directory / USER_FILE
        if path.exists() or (directory / COPY_FILE).exists():
            return cls._read(path)
        return cls()

    @classmethod
    def read_copy(cls, directory: Path) -> Self:
        """The copy alone: `UserError` where it cannot be read."""
        return cls._read(directory / COPY_FILE)

    @classmethod
    def _read(cls, path: Path) -> Self:
        try:
            found = _checked(json.loads(path.read_text(encoding="utf-8")))
            users = {each["name"]: _user(each) for each in found["users"]}
            times = ({str(key): int(at_s) for key, at_s in found.get(kind, {}).items()} for kind in ("revoked", "out"))
            return cls(users, *times)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"the file {path} with the users cannot be read: {error!r}", hint="restore it from a backup"
            ) from error

    def write(self, directory: Path) -> None:
        """Store the registry, and then its copy, each in one step."""
        users = [asdict(user) for user in self.users.values()]
        document = {"users": users, "revoked": dict(self.revoked), "out": dict(self.out)}
        text = json.dumps({**document, "sum": _sum(json.loads(json.dumps(document)))}, indent=1)
        write_whole(directory / USER_FILE, text)
        write_whole(directory / COPY_FILE, text)

    def user(self, name: str) -> User:
        """The user of a name."""
        found = self.users.get(name)
        if found is None:
            close = nearest(name, self.users)
            raise UserError(
                f"no user {name!r}", hint=f"did you mean {close!r}?" if close else "see `headgate user list`"
            )
        return found

    def added(self, user: User) -> Self:
        """With a new user."""
        if not _NAME.fullmatch(user.name) or user.name == "operator":
            raise UserError(
                f"{user.name!r} cannot be the name of a user", hint="use up to 48 letters, digits, '-' and '_'"
            )
        if user.name in self.users:
            raise UserError(f"there is a user {user.name!r}", hint="give new credentials with `headgate user rotate`")
        if not user.role:
            raise UserError(
                f"user {user.name!r} could do nothing", hint="give --subscribe STREAM, --publish STREAM or --operator"
            )
        return replace(self, users={**self.users, user.name: user})

    def changed(self, user: User) -> Self:
        """With other rights of a user."""
        return replace(self, users={**self.users, self.user(user.name).name: user})

    def rotated(self, name: str, user: User, ends_s: int) -> Self:
        """With another key for a user; the one before is revoked at `ends_s`."""
        before = self.user(name)
        retiring = {**before.retiring, before.key: ends_s}
        return replace(self, users={**self.users, name: replace(user, retiring=retiring)})

    def removed(self, name: str, now_s: int) -> Self:
        """Without a user, whose keys are revoked."""
        user = self.user(name)
        users = {other: each for other, each in self.users.items() if other != name}
        revoked = {**self.revoked, **dict.fromkeys((user.key, *user.retiring), now_s)}
        kind, _, site = user.program.partition(" ")
        gone = kind == "site" and all(each.program != user.program for each in users.values())
        return replace(self, users=users, revoked=revoked, out={**self.out, site: now_s} if gone else self.out)

    def settled(self, now_s: int) -> Self:
        """With the keys revoked whose time has come."""
        users, revoked = dict(self.users), dict(self.revoked)
        for name, user in self.users.items():
            due = [key for key, at_s in user.retiring.items() if at_s <= now_s]
            if due:
                rest = {key: at_s for key, at_s in user.retiring.items() if key not in due}
                users[name] = replace(user, retiring=rest)
                revoked |= dict.fromkeys(due, now_s)
        return replace(self, users=users, revoked=revoked)


def _part(stream: str, grant: Grant) -> dict[str, Grant]:
    return {} if grant.whole else {stream: grant}


def _sum(document: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _checked(document: dict[str, Any]) -> dict[str, Any]:
    """A document without its checksum, which it has to fit; one of before there was any has none."""
    if document.pop("sum", None) not in (None, _sum(document)):
        raise ValueError("it does not fit its checksum")
    if strange := document.keys() - {"users", "revoked", "out"}:
        raise ValueError(f"it has {min(strange)!r}, which is nothing of a registry")
    return document


def _user(document: Mapping[str, Any]) -> User:
    user = User(**document)  # a wrong key raises, and is reported as a damaged file
    grants = {name: decode_grant(each) for name, each in document.get("grants", {}).items()}
    return replace(user, subscribes=tuple(user.subscribes), publishes=tuple(user.publishes), grants=grants)
