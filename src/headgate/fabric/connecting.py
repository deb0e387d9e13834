"""A connection with the rights of its credentials: of an operator, of a role, or of a user through the gate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.fabric.accounts import PEOPLE_TAG, ROLE_TAG, inbox_prefix
from headgate.fabric.client import Fabric
from headgate.fabric.gated import GatedFabric
from headgate.fabric.keys import KeyPair, read_claims, seed_of, statement_of
from headgate.fabric.roled import RoleCredentials, RoleFabric
from headgate.fabric.wide import WideFabric
from headgate.protocol.port import FabricError
from headgate.wire.logs import Logs


@dataclass(frozen=True, slots=True)
class Bearer:
    """Whose credentials a file has: a name, the role of a program, whether it is a user who goes through the gate."""

    name: str = "operator"
    role: str = ""
    gated: bool = False

    @classmethod
    def of(cls, statement: str) -> Bearer:
        """From what was stated about it."""
        claims = read_claims(statement)
        tags = [str(each) for each in claims.get("nats", {}).get("tags", ())]
        roles = [tag.removeprefix(ROLE_TAG) for tag in tags if tag.startswith(ROLE_TAG)]
        return cls(str(claims.get("name", "operator")), roles[0] if roles else "", PEOPLE_TAG in tags)


def bearer_of(credentials: str | Path | None) -> Bearer:
    """The bearer of a credentials file; an operator where there is none."""
    if credentials is None:
        return Bearer()
    try:
        return Bearer.of(statement_of(Path(credentials).read_text(encoding="utf-8")))
    except OSError as error:
        raise FabricError(f"the credentials in {credentials} cannot be read: {error}") from error


async def connect_as(url: str, logs: Logs | None = None, **options: Any) -> Fabric:
    """Connect by an address and the credentials among the options.

    `credentials_text` is what a credentials file has in it, for who got that from another machine and has no such file.
    """
    logs, text = logs or Logs(), options.pop("credentials_text", None)
    bearer = bearer_of(options.get("user_credentials")) if text is None else Bearer.of(statement_of(text))
    if text is not None:
        options |= RoleCredentials(statement_of(text), KeyPair.of(seed_of(text))).options()
    if bearer.gated:
        fabric: Fabric = await GatedFabric.connect(url, logs, inbox_prefix=inbox_prefix(bearer.name), **options)
    elif bearer.role:
        fabric = await _in_role(url, logs, bearer.role, options)
    else:
        fabric = await WideFabric.connect(url, logs, **options)
    fabric.user = bearer.name
    return fabric


async def join(url: str, logs: Logs, credentials: RoleCredentials, **options: Any) -> RoleFabric:
    """Connect in a role, with credentials that are in memory only."""
    options.pop("user_credentials", None)
    bearer = Bearer.of(credentials.statement)
    fabric = await _in_role(url, logs, bearer.role, {**options, **credentials.options()})
    fabric.user = bearer.name
    return fabric


async def _in_role(url: str, logs: Logs, role: str, options: dict[str, Any]) -> RoleFabric:
    fabric = await RoleFabric.connect(url, logs, **options)
    fabric.role = role
    return fabric
