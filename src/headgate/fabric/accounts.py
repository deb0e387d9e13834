"""The accounts of the embedded server: their keys, what the server is told of them, and credentials of their users.

All logs belong to the account `home`; whoever is in it may do everything. Relays of sites and the Spark job have an
account each, which takes from `home` exactly what its role needs (`headgate.fabric.roles`); the keys of these accounts
follow from the operator's, so nothing more has to be kept. Everybody else is in `people`, which has no
logs and sees of `home` only what is exported as services: requests on `NAMESPACE.as.USER.>`, which the running service
answers, and publishing into a stream. What a user of `people` may publish to is a list in its credentials. In a single
account such lists would not be enough: the subject of a reply is not checked, and the server would store its answer
there. A reply to a request across accounts stays in the account that asked.

Devices that speak MQTT are in `devices`. It has logs of its own, in which the server keeps their sessions and what is
on its way to them, and takes nothing from `home`: a bridge with credentials for both passes rows on
(`headgate.api.mqtt`).

The keys lie in one file of the state directory that only its owner can read; the server is given public statements.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from headgate.errors import HeadgateError
from headgate.fabric.devices import Device
from headgate.fabric.keys import KeyPair, credentials_text, read_claims, seed_of, statement_of
from headgate.fabric.place import write_whole
from headgate.fabric.registry import ANY, AT, User
from headgate.fabric.roles import EXPORTS, NEWS, SEVERAL_ANSWERS, Rights, local_subject
from headgate.protocol.port import FabricError
from headgate.wire.logs import Logs
from headgate.wire.sizes import USER_REQUEST_BYTES

KEY_FILE: Final = "keys.json"
OPERATOR_FILE: Final = "operator.creds"
SYSTEM_FILE: Final = "system.creds"
SYSTEM: Final = "system"
HOME: Final = "home"
PEOPLE: Final = "people"
EVERYBODY: Final = "*"
"""Whoever is in an account, where keys are revoked."""
DEVICES: Final = "devices"
BRIDGE_FILE: Final = "bridge.creds"
BRIDGE_PASSWORD: Final = "bridge.mqtt"  # noqa: S105 - the name of a file
ACCOUNTS: Final = (SYSTEM, HOME, PEOPLE, DEVICES)
PEOPLE_TAG: Final = "headgate:people"
"""Tells a client that its credentials are those of a user who goes through the gate."""
ROLE_TAG: Final = "headgate:role:"
"""Tells a client that its credentials are those of a role, which is named after it: `site leaf`, `job`."""
# What people may ask of `home`, in any namespace; which of it, their credentials say.
_REQUESTS: Final = "*.as.*.>"
_SERVICES: Final = (_REQUESTS, "*.in.*", "*.in.*.unsent", "*.outbox.*.*.rows", "*.outbox.*.*.unsent")
_UNLIMITED: Final = {
    **dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1),
    "wildcards": True,
}
_LOGS: Final = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
_NO_LIMITS: Final = dict.fromkeys(("subs", "data", "payload"), -1)


@dataclass(frozen=True, slots=True)
class Keys:
    """The operator's key, which signs accounts, and the accounts' keys, which sign users."""

    operator: KeyPair
    accounts: Mapping[str, KeyPair]

    @classmethod
    def open(cls, directory: Path) -> Self:
        """The keys of a server, made at its first start.

        Raises:
            FabricError: The file is gone or damaged although the server has stored logs: nobody could read them.
        """
        path = directory / KEY_FILE
        keys = cls.read(directory)
        if keys is not None:
            missing = {name: KeyPair.new("account") for name in ACCOUNTS if name not in keys.accounts}
            if missing:
                keys = cls(keys.operator, {**keys.accounts, **missing})
                keys._store(path)
            return keys
        keys = cls(KeyPair.new("operator"), {name: KeyPair.new("account") for name in ACCOUNTS})
        keys._store(path)
        return keys

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """The keys of a server as they are stored, None before its first start.

        Raises:
            FabricError: As for `open`.
        """
        path = directory / KEY_FILE
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            accounts = {name: KeyPair.of(seed) for name, seed in found["accounts"].items()}
            keys = cls(KeyPair.of(found["operator"]), accounts)
        except FileNotFoundError:
            if (directory / "data" / "jetstream").exists():
                raise _lost(path, "is gone") from None
            return None
        except Exception as error:  # noqa: BLE001 - a seed that is none raises whatever its library likes
            raise _lost(path, f"cannot be read: {type(error).__name__}") from None
        if strange := accounts.keys() - set(ACCOUNTS):
            raise _lost(path, f"names the account {min(strange)!r}, which there is not")
        return keys

    def _store(self, path: Path) -> None:
        seeds = {name: pair.seed for name, pair in self.accounts.items()}
        write_whole(path, json.dumps({"operator": self.operator.seed, "accounts": seeds}))

    def role(self, namespace: str, name: str) -> KeyPair:
        """The key pair of the account of a role, such as `site leaf`, in a deployment."""
        material = hmac.digest(self.operator.seed.encode(), f"{namespace}/{name}".encode(), hashlib.sha256)
        return KeyPair.from_material("account", material)

    def configuration(
        self, directory: Path, revoked: Mapping[str, int], answering: Mapping[str, Sequence[str]] | None = None
    ) -> str:
        """The part of the server's configuration that says who may connect.

        `answering` are the accounts of sites by public key, with the subjects that they answer. The server is given the
        barest statement about each, of long ago, which counts only where it has lost the one that it was told since.
        """
        system = self.accounts[SYSTEM].public
        of_operator = {"type": "operator", "version": 2, "system_account": system}
        statement = self.operator.sign(_claims(self.operator.public, "headgate", of_operator))
        stated = {
            pair.public: self.account(name, revoked, answering if name == HOME else None)
            for name, pair in self.accounts.items()
        }
        for public, subjects in (answering or {}).items():
            stated[public] = self.role_account(public, "site", Rights(answers=tuple(subjects)), {}, issued_s=1)
        known = "\n".join(f"  {public}: {statement_}" for public, statement_ in stated.items())
        place = json.dumps(str(directory / "accounts"))
        return (
            f"operator: {statement}\nsystem_account: {system}\n"
            f'resolver: {{ type: full, dir: {place}, allow_delete: true, interval: "2m", timeout: "2s" }}\n'
            f"resolver_preload: {{\n{known}\n}}\n"
        )

    def account(
        self, name: str, revoked: Mapping[str, int], answering: Mapping[str, Sequence[str]] | None = None
    ) -> str:
        """What the operator states about an account: what it offers to others, or takes from them, and who is out.

        `answering` are subjects that sites answer, by the public key of each one's account: `home` may ask them.
        """
        rights: dict[str, Any] = {"type": "account", "version": 2, "limits": dict(_UNLIMITED)}
        if name in (HOME, DEVICES):
            rights["limits"] |= _LOGS
        if name == HOME:
            rights["exports"] = [_exported(each) for each in (*_SERVICES, *EXPORTS)]
            rights["exports"] += [{"name": f"news {each}", "subject": each, "type": "stream"} for each in NEWS]
            rights["imports"] = [
                {"name": each, "subject": each, "type": "service", "account": public}
                for public, subjects in (answering or {}).items()
                for each in subjects
            ]
        if name == PEOPLE:
            home = self.accounts[HOME].public
            rights["imports"] = [
                {"name": each, "subject": each, "type": "service", "account": home, "share": each == _REQUESTS}
                for each in _SERVICES
            ]
        if revoked and name != SYSTEM:
            rights["revocations"] = dict(revoked)
        return self.operator.sign(_claims(self.accounts[name].public, name, rights))

    def role_account(
        self, public: str, name: str, rights: Rights, revoked: Mapping[str, int], issued_s: int | None = None
    ) -> str:
        """What the operator states about the account of a role: what it takes from `home`, and what it answers."""
        home = self.accounts[HOME].public
        claims: dict[str, Any] = {"type": "account", "version": 2, "limits": dict(_UNLIMITED)}
        claims["imports"] = [
            {"name": each, "subject": each, "local_subject": local_subject(each), "type": "service", "account": home}
            for each in rights.services
        ]
        claims["imports"] += [
            {"name": f"news {each}", "subject": each, "type": "stream", "account": home} for each in rights.news
        ]
        claims["exports"] = [_exported(each) for each in rights.answers]
        if revoked:
            claims["revocations"] = dict(revoked)
        return self.operator.sign(_claims(public, name, claims, issued_s))

    def role_statement(self, account: KeyPair, user: KeyPair, name: str, role: str) -> str:
        """What lets a user with a key pair into the account of a role; `role` is such as `site leaf`."""
        rights: dict[str, Any] = {"pub": {}, "sub": {}, **_NO_LIMITS, "type": "user", "version": 2}
        rights["tags"] = [ROLE_TAG + role]
        return account.sign(_claims(user.public, name, rights))

    def all_rights(self, account: str, name: str) -> str:
        """New credentials of a user who may do everything in an account."""
        pair = KeyPair.new("user")
        rights = {"pub": {}, "sub": {}, **_NO_LIMITS, "type": "user", "version": 2}
        return credentials_text(self.accounts[account].sign(_claims(pair.public, name, rights)), pair.seed)

    def password(self, device: Device) -> str:
        """What a device gives as its password over MQTT: a statement that counts there only, and for its topics."""
        rights = {
            "pub": _allowed(device.published),
            "sub": _allowed(device.read),
            **_NO_LIMITS,
            "type": "user",
            "version": 2,
            "bearer_token": True,
            "allowed_connection_types": ["MQTT"],
        }
        claims = _claims(device.key, device.name, rights, device.issued_s)
        if device.expires_s is not None:
            claims["exp"] = device.expires_s
        return self.accounts[DEVICES].sign(claims)

    def has_stated(self, account: str, credentials: str) -> bool:
        """Whether a credentials file is whole, and of a user of an account."""
        try:
            text, pair = statement_of(credentials), KeyPair.of(seed_of(credentials))
            claims = read_claims(text)
        except (HeadgateError, ValueError, IndexError):
            return False
        return claims.get("sub") == pair.public and self.accounts[account].has_signed(text)

    def credentials(self, user: User, pair: KeyPair, logs: Logs) -> str:
        """The credentials of a user with a key pair, in the namespace of a deployment."""
        rights: dict[str, Any] = {"pub": {}, "sub": {}, **_NO_LIMITS, "type": "user", "version": 2}
        if user.program:
            rights["tags"] = [ROLE_TAG + user.program]
        elif not user.operator:
            rights["pub"] = {"allow": [logs.asked_by(user.name), *_inputs(user, logs)]}
            rights["sub"] = {"allow": [f"{inbox_prefix(user.name)}.>"]}
            rights["tags"] = [PEOPLE_TAG]
            if not user.publishes:  # the server ends a connection that sends more, before anybody has to read it
                rights["payload"] = USER_REQUEST_BYTES
        claims = _claims(pair.public, user.name, rights, user.issued_s)
        if user.expires_s is not None:
            claims["exp"] = user.expires_s
        account = self.accounts[HOME if user.operator else PEOPLE]
        if user.program:
            account = self.role(logs.namespace, user.program)
        return credentials_text(account.sign(claims), pair.seed)


def _inputs(user: User, logs: Logs) -> list[str]:
    """Where a user may publish: into a stream, at its root and at any site, or at one site only."""
    found: list[str] = []
    for each in user.publishes:
        stream, _, site = each.partition(AT)
        if not site:
            home = logs.published_any if stream == ANY else logs.published(stream)
            found += [home, f"{home}.unsent"]
        found += [logs.published_at(site or ANY, stream), logs.unsent_at(site or ANY, stream)]
    return found


def _allowed(subjects: tuple[str, ...]) -> dict[str, list[str]]:
    """The right to these subjects and no others; an empty list would be the right to all."""
    return {"allow": list(subjects)} if subjects else {"deny": [">"]}


def inbox_prefix(name: str) -> str:
    """Where a user of `people` hears answers: nobody else may listen there."""
    return f"_INBOX_{name}"


def _exported(subject: str) -> dict[str, str]:
    several = subject == _REQUESTS or subject in SEVERAL_ANSWERS
    return {
        "name": subject,
        "subject": subject,
        "type": "service",
        "response_type": "Stream" if several else "Singleton",
    }


def _claims(subject: str, name: str, rights: Mapping[str, Any], issued_s: int | None = None) -> dict[str, Any]:
    return {"iat": int(time.time()) if issued_s is None else issued_s, "sub": subject, "name": name, "nats": rights}


def _lost(path: Path, what: str) -> FabricError:
    return FabricError(
        f"the file {path} with the keys of the NATS server {what}, and its logs can be opened with these keys only",
        hint="restore it from a backup of the state directory",
    )
