"""Credentials of roles, for whoever may read the keys of a server."""

from __future__ import annotations

from pathlib import Path

from headgate.fabric.accounts import KEY_FILE, Keys
from headgate.fabric.keys import KeyPair
from headgate.fabric.roled import RoleCredentials
from headgate.fabric.roles import SITE


def has_keys(directory: Path) -> bool:
    """Whether roles can be given at the server of a directory."""
    return (directory / KEY_FILE).exists()


def credentials_of(keys: Keys, namespace: str, role: str) -> RoleCredentials:
    """New credentials of a role, `site NAME` or `job`, for a program on this machine."""
    pair = KeyPair.new("user")
    return RoleCredentials(keys.role_statement(keys.role(namespace, role), pair, role.replace(" ", "-"), role), pair)


def site_credentials(directory: Path, namespace: str, site: str) -> RoleCredentials:
    """New credentials of a site's relay."""
    return credentials_of(Keys.open(directory), namespace, f"{SITE} {site}")
