"""Which sites of which deployments have an account at a server, and which links of earlier plans they may still use.

One file beside the server's keys, without secrets. Where it is lost or damaged it is made again: the service writes the
sites of its plan at every start, and looks through the plans that are still published for links of earlier ones.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from headgate.diagnostics import FABRIC
from headgate.fabric.accounts import Keys
from headgate.fabric.place import write_whole
from headgate.fabric.roles import SITE, Edge, site_answers
from headgate.wire.frame import WireError
from headgate.wire.logs import Logs
from headgate.wire.sealed import seal, unseal

ROLE_FILE: Final = "roles.json"


@dataclass(frozen=True, slots=True)
class OldLink:
    """A link of an earlier plan, until the first `revision` without it; rows up to `upto` may still have to take it.

    `upto` is None while that is not known: before anything was committed under the later revision.
    """

    stream: str
    parent: str
    child: str
    revision: int
    upto: int | None = None

    @property
    def edge(self) -> Edge:
        """Which link it is."""
        return self.stream, self.parent, self.child


@dataclass(frozen=True, slots=True)
class Chapter:
    """The sites and the named jobs of one deployment that have accounts, and its links of earlier plans."""

    sites: tuple[str, ...] = ()
    old: tuple[OldLink, ...] = ()
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoleBook:
    """The chapters of all deployments of a server, by namespace. `known` is whether there was a file to read."""

    chapters: Mapping[str, Chapter] = field(default_factory=dict)
    known: bool = False

    @classmethod
    def read(cls, directory: Path) -> Self:
        """The book of a server; an empty one where there is none that can be read."""
        path = directory / ROLE_FILE
        try:
            return cls.parse(path.read_bytes())
        except FileNotFoundError:
            return cls()
        except (OSError, WireError) as error:
            FABRIC.warning("the file %s with the roles of sites cannot be read and is made again: %s", path, error)
            return cls()

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """The book in a file; `WireError` where it is none."""
        try:
            chapters = {
                str(name): Chapter(
                    tuple(map(str, each["sites"])),
                    tuple(OldLink(**link) for link in each["old"]),
                    tuple(map(str, each.get("jobs", ()))),
                )
                for name, each in json.loads(unseal(data)).items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise WireError(f"these are no roles of sites: {error!r}") from error
        return cls(chapters, known=True)

    def answering(self, keys: Keys) -> dict[str, tuple[str, ...]]:
        """By the public key of each site's account, what the site answers."""
        return {
            keys.role(namespace, f"{SITE} {site}").public: site_answers(Logs(namespace), site)
            for namespace, chapter in self.chapters.items()
            for site in chapter.sites
        }


def write_chapter(directory: Path, namespace: str, chapter: Chapter) -> RoleBook:
    """Replace what is kept of one deployment; several may share a server. Returns the whole book."""
    with _held(directory):
        book = RoleBook.read(directory)
        chapters = {**book.chapters, namespace: chapter}
        if not chapter.sites:
            del chapters[namespace]
        book = replace(book, chapters=chapters)
        text = json.dumps({name: asdict(each) for name, each in chapters.items()})
        write_whole(directory / ROLE_FILE, seal(text.encode()))
        return book


@contextmanager
def _held(directory: Path) -> Iterator[None]:
    with (directory / f"{ROLE_FILE}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
