"""A backup of a deployment: its whole state directory in one file, with a checksum for each part.

Of one that runs, a copy is made first (`headgate.service.copying`).

The file has the keys of the deployment: only its owner can read it. Logs of programs, and what is made again at every
start, are left out.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from headgate.errors import HeadgateError
from headgate.fabric.membership import MEMBER_FILE
from headgate.private import make_private
from headgate.service.stored_files import kind_of

_LIST: Final = "headgate-backup.json"
_FORMAT: Final = 1
_CHUNK: Final = 1 << 20
_SITES: Final = "sites/"


class BackupError(HeadgateError):
    """A backup that cannot be made, or cannot be trusted."""


def make_backup(state_dir: Path, file: Path) -> int:
    """Write a backup and return how many files it has. The caller holds the state directory."""
    if file.exists():
        raise BackupError(f"there is a file {file}", hint="move it away, or name another one")
    draft = file.with_name(file.name + ".new")
    listed: dict[str, Any] = {}
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        with tarfile.open(fileobj=out, mode="w") as archive:
            for path, name in stored_files(state_dir):
                listed[name] = [path.stat().st_size, _digest(path)]
                archive.add(path, name, recursive=False)
            text = json.dumps({"format": _FORMAT, "time_s": int(time.time()), "files": listed}).encode()
            last = tarfile.TarInfo(_LIST)
            last.size = len(text)
            archive.addfile(last, io.BytesIO(text))
        out.flush()
        os.fsync(out.fileno())
    check_backup(draft)
    draft.replace(file)
    return len(listed)


def stored_files(state_dir: Path) -> Iterator[tuple[Path, str]]:
    """The files that belong into a backup, with their names in it: not the servers of sites, see `refuse_host`."""
    for path in sorted(state_dir.rglob("*")):
        name = path.relative_to(state_dir).as_posix()
        kind = kind_of(name)
        if (
            (kind is None or kind.backed_up)
            and not name.startswith(_SITES)
            and path.is_file()
            and not path.is_symlink()
        ):
            yield path, name


def refuse_host(state_dir: Path) -> None:
    """Say why there is no backup of a host that has joined a deployment.

    What its server holds are copies of what its parents and the root have. An older copy would be worse than none: the
    numbers of its logs would be given again to other rows, which readers and roots take for rows that they have.
    """
    if (state_dir / MEMBER_FILE).exists():
        raise BackupError(
            f"{state_dir} is that of a host that has joined a deployment: what it holds is at other sites too",
            hint="back up the deployment at home; a host that is lost joins again, and fetches what its readers lack",
        )


def check_backup(file: Path) -> dict[str, Any]:
    """The list of files of a backup, each of which was compared with its checksum.

    Raises:
        BackupError: Something in it is damaged, missing or not on the list; nothing was written.
    """
    try:
        with tarfile.open(file, "r:") as archive:
            found = {member.name: (member.size, _of(archive, member)) for member in archive if member.name != _LIST}
            text = archive.extractfile(_LIST)
            document = json.loads(b"" if text is None else text.read())
        listed = {name: tuple(each) for name, each in document["files"].items()}
    except (tarfile.TarError, OSError, KeyError, ValueError, TypeError, AttributeError, EOFError) as error:
        raise BackupError(f"this is no whole backup: {error}", where=str(file), hint="take another one") from error
    if document.get("format") != _FORMAT:
        raise BackupError(
            f"the backup has format {document.get('format')}, this program reads {_FORMAT}", where=str(file)
        )
    wrong = sorted(name for name in found.keys() | listed.keys() if found.get(name) != listed.get(name))
    unsafe = sorted(name for name in listed if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts)
    if wrong or unsafe:
        raise BackupError(
            f"{', '.join([*wrong, *unsafe][:5])} is damaged or missing in the backup",
            where=str(file),
            hint="take another one",
        )
    return listed


def restore_backup(file: Path, state_dir: Path) -> int:
    """Put a backup into a state directory that is not there yet; all of it is checked before anything is written."""
    listed = check_backup(file)
    if state_dir.exists() and any(state_dir.iterdir()):
        raise BackupError(f"{state_dir} is not empty", hint="move it away first, or give another --state-dir")
    make_private(state_dir)
    with tarfile.open(file, "r:") as archive:
        for name in listed:
            source = archive.extractfile(name)
            assert source is not None
            place = state_dir / name
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                while chunk := source.read(_CHUNK):
                    out.write(chunk)
    return len(listed)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return _sum(file)


def _of(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = archive.extractfile(member)
    return "" if file is None else _sum(file)


def _sum(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()
