"""The accounts of the embedded server: their keys, what the server is told of them, and credentials of their users.

All logs belong to the account `home`. The keys lie in one file of the state directory that only its owner can read;
the server itself is given public statements only. Who may read that file may do everything, as with the logs beside it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from headgate.fabric.keys import KeyPair, credentials_text
from headgate.fabric.place import write_whole
from headgate.protocol.port import FabricError

KEY_FILE: Final = "keys.json"
OPERATOR_FILE: Final = "operator.creds"
SYSTEM: Final = "system"
HOME: Final = "home"
ACCOUNTS: Final = (SYSTEM, HOME)
_UNLIMITED: Final = {
    **dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1),
    "wildcards": True,
}
_LOGS: Final = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)


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
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            accounts = {name: KeyPair.of(seed) for name, seed in found["accounts"].items()}
            return cls(KeyPair.of(found["operator"]), {name: accounts[name] for name in ACCOUNTS})
        except FileNotFoundError:
            if (directory / "data" / "jetstream").exists():
                raise _lost(path, "is gone") from None
        except Exception as error:  # noqa: BLE001 - a seed that is none raises whatever its library likes
            raise _lost(path, f"cannot be read: {type(error).__name__}") from None
        keys = cls(KeyPair.new("operator"), {name: KeyPair.new("account") for name in ACCOUNTS})
        seeds = {name: pair.seed for name, pair in keys.accounts.items()}
        write_whole(path, json.dumps({"operator": keys.operator.seed, "accounts": seeds}), durable=True)
        return keys

    def configuration(self, directory: Path) -> str:
        """The part of the server's configuration that says who may connect."""
        system = self.accounts[SYSTEM].public
        of_operator = {"type": "operator", "version": 2, "system_account": system}
        statement = self.operator.sign(_claims(self.operator.public, "headgate", of_operator))
        known = "\n".join(f"  {pair.public}: {self.account(name)}" for name, pair in self.accounts.items())
        place = json.dumps(str(directory / "accounts"))
        return (
            f"operator: {statement}\nsystem_account: {system}\n"
            f'resolver: {{ type: full, dir: {place}, allow_delete: true, interval: "2m", timeout: "2s" }}\n'
            f"resolver_preload: {{\n{known}\n}}\n"
        )

    def account(self, name: str) -> str:
        """What the operator states about an account."""
        limits = {**_UNLIMITED, **(_LOGS if name == HOME else {})}
        return self.operator.sign(
            _claims(self.accounts[name].public, name, {"type": "account", "version": 2, "limits": limits})
        )

    def credentials(self, account: str, name: str) -> str:
        """New credentials of a user who may do everything in an account."""
        pair = KeyPair.new("user")
        rights = {"pub": {}, "sub": {}, **dict.fromkeys(("subs", "data", "payload"), -1), "type": "user", "version": 2}
        return credentials_text(self.accounts[account].sign(_claims(pair.public, name, rights)), pair.seed)


def _claims(subject: str, name: str, rights: Mapping[str, Any]) -> dict[str, Any]:
    return {"iat": int(time.time()), "sub": subject, "name": name, "nats": rights}


def _lost(path: Path, what: str) -> FabricError:
    return FabricError(
        f"the file {path} with the keys of the NATS server {what}, and its logs can be opened with these keys only",
        hint="restore it from a backup of the state directory",
    )
