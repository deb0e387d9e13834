"""What a source holds that its stream has not taken in: messages of a `nats` source, files of a file source.

Spark's checkpoint says what the last committed micro-batch had read. It lies in the state directory, so only a process
on the host of the Spark job can say; from elsewhere, and for other sources, nothing is known.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from headgate.fabric import Fabric
from headgate.model import Stream

FILES: Final = frozenset({"csv", "json", "xml", "text", "parquet", "orc", "avro"})


@dataclass(frozen=True, slots=True)
class WaitingCount:
    """So many messages or files wait, the oldest for `oldest_s`.

    `read` and `end` are set where the checkpoint has read further than the source goes: then they do not belong
    together.
    """

    count: int
    unit: str
    oldest_s: float = 0.0
    read: int = 0
    end: int = 0

    def to_document(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


async def waiting(fabric: Fabric, stream: Stream, state_dir: Path | None) -> WaitingCount | None:
    """What waits in the source of a stream, None when it cannot be said."""
    if state_dir is None:
        return None
    checkpoint = state_dir / "checkpoints" / stream.name / "spark"
    if not checkpoint.is_dir():
        return None
    try:
        if stream.source.published or stream.source.collected:
            return await _messages(fabric, stream.name, checkpoint)
        if stream.source.format in FILES and "path" in stream.source.options:
            return _files(str(stream.source.options["path"]), stream.source.options, checkpoint)
    except (OSError, ValueError, KeyError, TypeError):  # half written or garbage: the job says what is wrong with it
        return None
    return None


async def _messages(fabric: Fabric, stream: str, checkpoint: Path) -> WaitingCount | None:
    log = fabric.logs.input(stream)
    info = await fabric.info(log)
    offset = _committed(checkpoint)
    if info is None or offset is None:
        return None
    read, end = int(offset["sequence"]), int(info.state.last_seq)
    if read > end:
        return WaitingCount(0, "messages", read=read, end=end)
    first = await fabric.read(log, ">", read, limit=1) if read < end else []
    if not first:
        return WaitingCount(0, "messages")
    return WaitingCount(end - first[0].sequence + 1, "messages", max(time.time() - first[0].time_s, 0.0))


def _committed(checkpoint: Path) -> dict[str, Any] | None:
    """The offset at the end of the last committed micro-batch, None before the first."""
    done = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdigit()]
    if not done:
        return None
    found = json.loads((checkpoint / "offsets" / str(max(done))).read_text(encoding="utf-8").splitlines()[-1])
    if not isinstance(found, dict):
        raise TypeError("an offset is an object")
    return found


def _files(path: str, options: Mapping[str, Any], checkpoint: Path) -> WaitingCount | None:
    """Files that no micro-batch has listed: Spark writes the names of those that it has."""
    known = {Path(name) for name in _listed(checkpoint / "sources" / "0")}
    place = Path(unquote(urlsplit(path).path) if path.startswith("file:") else path)
    if any(sign in path for sign in "*?[{"):
        found = list(Path(place.anchor or ".").glob(str(place.relative_to(place.anchor))))
    else:
        pattern = str(options.get("pathGlobFilter", "*"))
        found = list(place.glob(pattern)) if place.is_dir() else [place]
    new = [each for each in found if each.is_file() and each.name[0] not in "._" and each.absolute() not in known]
    if not new:
        return WaitingCount(0, "files")
    return WaitingCount(len(new), "files", max(time.time() - min(each.stat().st_mtime for each in new), 0.0))


def _listed(log: Path) -> Iterator[str]:
    """The files that a file source has listed, from its log of batches."""
    for path in log.glob("*"):
        if path.name.removesuffix(".compact").isdigit():
            for line in path.read_text(encoding="utf-8").splitlines():
                if line.startswith("{"):
                    yield unquote(urlsplit(json.loads(line)["path"]).path)
