"""How each kind of file in a state directory is told from a damaged one, and why others have no check.

Every kind of `headgate.service.stored_files` stands in one of the two tables; a test holds them together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from headgate.errors import HeadgateError
from headgate.fabric.accounts import KEY_FILE, Keys
from headgate.fabric.devices import Devices
from headgate.fabric.host_notes import read_seen
from headgate.fabric.keys import check_credentials, check_statement
from headgate.fabric.membership import CREDENTIALS_FILE, MEMBER_FILE, Membership
from headgate.fabric.registry import USER_FILE, Registry
from headgate.fabric.rolebook import RoleBook
from headgate.pipeline.resuming import CommitNote
from headgate.service.access import read_before, read_token
from headgate.service.state_format import FORMAT, StateFormatError, read_format
from headgate.service.stored_files import kind_of
from headgate.service.survey import read_checkpoint
from headgate.wire.sealed import unseal

Check = Callable[[Path], object]
"""Raises where a file is not whole."""


def _credentials(path: Path) -> None:
    check_credentials(path.read_text(encoding="ascii"))


def _format(path: Path) -> None:
    if read_format(path) > FORMAT:
        raise StateFormatError(f"it is of the format {read_format(path)}, and this version reads {FORMAT}")


def _account(path: Path) -> None:
    if path.suffix == ".jwt":
        check_statement(path.read_text(encoding="ascii"))


CHECKS: Final[Mapping[str, Check]] = {
    "whose a checkpoint is": read_checkpoint,
    "how many rows were committed": lambda path: CommitNote.decode(path.read_bytes()),
    "the keys": lambda path: Keys.read(path.parent),
    "the operator's credentials": _credentials,
    "the server's credentials": _credentials,
    "the job's credentials": _credentials,
    "the credentials of the bridge to MQTT": _credentials,
    "the password of the bridge to MQTT": lambda path: check_statement(path.read_text(encoding="ascii")),
    "the users": lambda path: Registry.read_file(path.parent),
    "the copy of the users": lambda path: Registry.read_copy(path.parent),
    "the devices": lambda path: Devices.read(path.parent),
    "the roles of sites": lambda path: RoleBook.parse(path.read_bytes()),
    "an account as the server was told": _account,
    "the token of the HTTP API": lambda path: read_token(path.parent.parent),
    "the token before": read_before,
    "the format of the directory": _format,
    "which site a host is": lambda path: Membership.read(path.parent),
    "the credentials of a host": _credentials,
    "which streams a host holds rows of": lambda path: json.loads(unseal(path.read_bytes())),
    "how far the logs of a host were": lambda path: read_seen(path.parent),
}
"""By kind. What is missing although another file says that it should be there is found with that one."""

_MADE: Final = "made again at every start, or when it is needed"
_SERVER: Final = "the NATS server reads it when it starts, and what it lost is asked of it"
UNCHECKED: Final[Mapping[str, str]] = {
    "the audit": "its chain of hashes is followed",
    "the catalog": "each of its rows is read",
    "the catalog's journal": "it is read with the catalog",
    "the catalog's shared memory": _MADE,
    "a catalog that was set aside": "nobody reads it",
    "the lineage of batches": "made again from the root log",
    "an index for workers": "its reader compares its checksum, and it is built again",
    "Spark's checkpoint": "it is compared with the root log before it is used",
    "a checkpoint that was set aside": "nobody reads it",
    "the description of a log": _SERVER,
    "the checksum of a description": _SERVER,
    "messages of a log": "each message is read",
    "the index of a log": _SERVER,
    "the server's notes on a log": _SERVER,
    "a copy of a description": "written with the description",
    "files of a log that was given up": "nobody reads it",
    "where the server is": _MADE,
    "what the server is told": _MADE,
    "what the server said": "for reading",
    "who holds the roles": "empty",
    "who holds the directory": "empty",
    "what the job is told": _MADE,
    "what a named job is told": _MADE,
    "what the job said": "for reading",
    "what a named job said": "for reading",
    "where the HTTP API is": _MADE,
    "the limits of users, for gateways": _MADE,
    "what the HTTP API said": "for reading",
    "the secret of a Spark cluster": "a cluster that has another one refuses the job",
    "that this is a demonstration": "empty",
    "the wrapper of Java": _MADE,
    "what Spark has under way": _MADE,
    "an invitation that is being accepted": _MADE,
    "a file that is being replaced": "nobody reads it",
}
"""By kind, why there is no check."""


def check_files(state_dir: Path) -> tuple[int, list[str]]:
    """How many files have a check, and in a sentence each what is wrong with those that do not pass it."""
    count, wrong = 0, []
    for path in sorted(state_dir.rglob("*")):
        name = path.relative_to(state_dir).as_posix()
        kind = kind_of(name) if path.is_file() else None
        check = CHECKS.get(kind.name) if kind else None
        if kind and check:
            count += 1
            try:
                check(path)
            except FileNotFoundError:
                count -= 1  # replaced, or gone, since it was listed
            except HeadgateError as error:
                wrong.append(f"{name}, {kind.name}: {error}")
            except Exception as error:  # noqa: BLE001 - a reader may fail in any way on what it was not made for
                wrong.append(f"{name}, {kind.name}: it cannot be read: {error!r}"[:300])
    return count, [*wrong, *_missing(state_dir)]


def _missing(state_dir: Path) -> list[str]:
    """Files that are gone although what lies beside them needs them."""
    found = []
    for directory in (state_dir / "nats", *sorted(state_dir.glob("sites/*/nats"))):
        for name, check in ((KEY_FILE, Keys.read), (USER_FILE, Registry.read_file)):
            if not (directory / name).exists():
                try:
                    check(directory)
                except HeadgateError as error:
                    found.append(str(error))
    if (state_dir / MEMBER_FILE).exists() and not (state_dir / CREDENTIALS_FILE).exists():
        found.append(f"the file {state_dir / CREDENTIALS_FILE} with the credentials of this host is gone: join again")
    return found
