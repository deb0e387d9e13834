"""Joining a deployment from another host: an invitation as one line of text, and what a host that has joined keeps.

An invitation has the address of home, the fingerprint of its certificate, and credentials of the site that hold for a
short time. Whoever accepts it makes a key of its own, has home sign that one, and the invitation is used up.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from headgate.errors import HeadgateError
from headgate.fabric.client import Fabric
from headgate.fabric.connecting import connect_as
from headgate.fabric.gated import GatedFabric
from headgate.fabric.keys import KeyPair, credentials_text
from headgate.fabric.place import write_whole
from headgate.fabric.server import running_url
from headgate.private import make_private
from headgate.protocol.port import FabricError
from headgate.wire.frame import WireError
from headgate.wire.logs import Logs
from headgate.wire.sealed import seal, unseal

MEMBER_FILE: Final = "site.json"
CREDENTIALS_FILE: Final = "site.creds"
_PREFIX: Final = "hgi1."


class InvitationError(HeadgateError):
    """An invitation that cannot be used, or a host that has not joined."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """What `headgate invite` prints, as one token."""

    site: str
    url: str
    namespace: str
    user: str
    credentials: str
    expires_s: int
    fingerprint: str = ""

    def token(self) -> str:
        """The invitation as text without spaces."""
        return _PREFIX + base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode().rstrip("=")

    @classmethod
    def parse(cls, token: str) -> Self:
        """Read a token; one that is cut off or mistyped is refused."""
        text = token.strip().removeprefix(_PREFIX)
        try:
            return cls(**json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))
        except (ValueError, TypeError) as error:
            raise InvitationError(
                "this is no invitation", hint="copy the whole line that `headgate invite SITE` has printed"
            ) from error

    @property
    def spent(self) -> InvitationError:
        """What is wrong when home does not take it."""
        return InvitationError(
            f"the invitation of site {self.site!r} was used already, was taken back, or has expired",
            hint=f"ask for another one with `headgate invite {self.site}`",
        )


@dataclass(frozen=True, slots=True)
class Membership:
    """Which site a host is, and how it reaches home: `site.json` in its state directory, beside its credentials."""

    site: str
    url: str
    namespace: str = "hg"
    fingerprint: str = ""

    @classmethod
    def read(cls, state_dir: Path) -> Self | None:
        """What a state directory says; None where no host has joined with it."""
        path = state_dir / MEMBER_FILE
        try:
            return cls(**json.loads(unseal(path.read_bytes())))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, WireError) as error:
            raise InvitationError(
                f"the file {path} cannot be read: {error}", hint="join again with another invitation"
            ) from error

    def write(self, state_dir: Path, credentials: str) -> None:
        """Keep it, with the host's credentials."""
        make_private(state_dir)
        write_whole(state_dir / CREDENTIALS_FILE, credentials)
        write_whole(state_dir / MEMBER_FILE, seal(json.dumps(asdict(self)).encode()))

    def options(self, state_dir: Path) -> dict[str, Any]:
        """How to be let in at home as the site."""
        return {"user_credentials": str(state_dir / CREDENTIALS_FILE), **self.trust}

    @property
    def trust(self) -> dict[str, str]:
        """What is trusted at home: the one certificate, where there is TLS."""
        return {"tls_fingerprint": self.fingerprint} if self.fingerprint else {}


async def accept(invitation: Invitation, state_dir: Path, options: Mapping[str, Any]) -> Membership:
    """Join: have home sign a new key in exchange for the invitation, and keep it. `options` are of the connection."""
    if invitation.expires_s <= time.time():
        raise invitation.spent
    member = Membership(invitation.site, invitation.url, invitation.namespace, invitation.fingerprint)
    make_private(state_dir)
    first, pair = state_dir / "invitation.creds", KeyPair.new("user")
    write_whole(first, invitation.credentials)
    try:
        answer = await _ask(
            member,
            {**options, **member.trust, "user_credentials": str(first)},
            {"join": invitation.user, "key": pair.public},
        )
    except FabricError as error:
        raise invitation.spent if _is_put_out(error) else error from error
    finally:
        first.unlink()
    if "error" in answer:
        raise InvitationError(answer["error"], hint=f"ask for another one with `headgate invite {invitation.site}`")
    member.write(state_dir, credentials_text(answer["statement"], pair.seed))
    return member


def _is_put_out(error: FabricError) -> bool:
    """Whether the server does not let the credentials in: they were revoked, or their time is over."""
    return "does not let this user in" in str(error) or "uthoriz" in str(error)


async def leave(member: Membership, state_dir: Path, options: Mapping[str, Any], *, force: bool) -> None:
    """Tell home that this host is the site no more; its credentials end with that."""
    answer = await _ask(member, {**options, **member.options(state_dir)}, {"leave": True, "force": force})
    if "error" in answer:
        raise InvitationError(answer["error"], hint="move or end them first, or give --force")
    for name in (MEMBER_FILE, CREDENTIALS_FILE):
        (state_dir / name).unlink(missing_ok=True)


def server_directory(state_dir: Path, site: str) -> Path:
    """Where the server of a site is kept."""
    return state_dir / "sites" / site


async def connect_near(member: Membership, state_dir: Path, options: Mapping[str, Any]) -> Fabric:
    """Connect to home from a host that has joined, with credentials of one's own among the options, or as the site.

    An operator reads the inboxes of the site at the site's own server, and whoever may read the state directory
    publishes there.
    """
    given = {**member.options(state_dir), **options}
    fabric = await connect_as(member.url, Logs(member.namespace), **given)
    own = running_url(server_directory(state_dir, member.site))
    if own is not None and not isinstance(fabric, GatedFabric):
        fabric.near[member.site] = await Fabric.connect(own, fabric.logs)
    return fabric


async def _ask(member: Membership, options: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    logs = Logs(member.namespace)
    async with await connect_as(member.url, logs, **options) as fabric:
        return dict(json.loads(await fabric.request(logs.joined(member.site), json.dumps(asked).encode())))
