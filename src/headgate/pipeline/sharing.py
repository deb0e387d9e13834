"""Index files on executors that do not see the driver's directory: Spark carries them, checked by their hash.

The driver makes each file a broadcast variable, which executors get from each other, and takes it back when no version
needs it. A worker writes what it is given into a directory of its executor and maps it from there: once on each
executor, whoever of its workers comes first. On a local master workers map the driver's files themselves.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.matching import MatchingError
from headgate.pipeline.states import IndexRef

if TYPE_CHECKING:
    from pyspark import SparkContext

_FOLDER = "headgate-indexes"


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file that travels with a task: its name, the hash of what is in it, and the broadcast variable that has it."""

    name: str
    sha256: str
    content: Any = field(compare=False, repr=False)


class FileSharing:
    """The driver's side: the files of a directory as broadcast variables, each for as long as a version needs it."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._shared: dict[str, SharedFile] = {}
        self._before: set[str] = set()

    def share(self, paths: Iterable[Path]) -> tuple[SharedFile, ...]:
        """The files that a version needs, shared now if need be; those that only versions before the last need go."""
        wanted = {path.name: path for path in paths}
        for name, path in wanted.items():
            if name not in self._shared:
                data = path.read_bytes()
                found = SharedFile(name, hashlib.sha256(data).hexdigest(), self._context.broadcast(data))
                self._shared[name] = found
        for name in set(self._shared) - set(wanted) - self._before:
            self._shared.pop(name).content.destroy()
        self._before = set(wanted)
        return tuple(self._shared[name] for name in wanted)


def fetched(ref: IndexRef, stream: str, root: Path | None = None) -> IndexRef:
    """An index whose files are on this executor, written now where they are not; any other one as it is.

    Raises:
        MatchingError: A file is not what the driver has shared.
    """
    if not ref.files:
        return ref
    directory = (_executor_directory() if root is None else root) / _FOLDER / stream
    directory.mkdir(parents=True, exist_ok=True)
    for file in ref.files:
        path = directory / file.name
        if not path.exists():
            _write(path, file)
    for path in directory.glob("*.hga"):
        if path.name not in {file.name for file in ref.files}:
            path.unlink(missing_ok=True)  # who has it mapped keeps it
    return replace(ref, directory=str(directory), files=())


def _write(path: Path, file: SharedFile) -> None:
    data = file.content.value
    found = hashlib.sha256(data).hexdigest()
    if found != file.sha256:
        raise MatchingError(
            f"{file.name} came as {found[:12]}, the driver has shared {file.sha256[:12]}",
            where=str(path.parent),
            hint="it is compiled from the catalog instead",
        )
    partly = path.with_name(f"{path.name}.{os.getpid()}.part")
    partly.write_bytes(data)
    partly.replace(path)


def _executor_directory() -> Path:
    from pyspark import SparkFiles

    return Path(SparkFiles.getRootDirectory()).absolute()
