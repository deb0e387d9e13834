"""What the server of a site leaves beside its logs when it stops: how far each has got, and how many messages it holds.

A file of a log that is gone leaves its end where it was, and the server says nothing of it. At home the catalog knows
how many messages there were (`headgate.service.witness`); a host has no catalog.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headgate.diagnostics import FABRIC, noted
from headgate.fabric.administration import LogState
from headgate.fabric.place import write_whole
from headgate.wire.frame import WireError
from headgate.wire.sealed import seal, unseal

SEEN_FILE: Final = "seen.json"
_Seen = dict[str, tuple[int, int]]


def write_seen(directory: Path, infos: Mapping[str, LogState]) -> None:
    """Note the logs of a server that nobody writes to any more."""
    found = {name: (info.last, info.messages) for name, info in infos.items()}
    write_whole(directory / SEEN_FILE, seal(json.dumps(found).encode()))


def take_seen(directory: Path) -> _Seen:
    """What was noted at the last stop, which holds until something is written: the file goes."""
    found: _Seen = {}
    with noted(FABRIC, "how far the logs of a site were is not known", WireError):
        found = read_seen(directory)
    (directory / SEEN_FILE).unlink(missing_ok=True)
    return found


def read_seen(directory: Path) -> _Seen:
    """What was noted at the last stop; nothing where that was a crash. `WireError` where it cannot be read."""
    try:
        document = json.loads(unseal((directory / SEEN_FILE).read_bytes()))
        return {str(name): (int(last), int(messages)) for name, (last, messages) in document.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise WireError(f"it does not say how far logs were: {error!r}") from error


def lacking(infos: Mapping[str, LogState], seen: _Seen) -> dict[str, int]:
    """By log how many messages are missing since the last stop; a log that is gone lacks all of them.

    >>> lacking({"A": LogState("A", {}, 9, 3), "B": LogState("B", {}, 9, 3)}, {"A": (9, 5), "B": (9, 3), "C": (4, 2)})
    {'A': 2, 'C': 2}
    """
    found = {name: infos[name] for name in seen if name in infos}
    missing = {name: seen[name][1] - each.messages for name, each in found.items() if each.last <= seen[name][0]}
    gone = {name: messages for name, (_, messages) in seen.items() if name not in infos}
    return {name: count for name, count in sorted({**missing, **gone}.items()) if count > 0}
