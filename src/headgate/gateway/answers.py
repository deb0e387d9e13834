"""Which questions of a reader are answered from memory, and when a reader that waits is woken: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from headgate.gateway.memory import SiteMemory
from headgate.protocol import port
from headgate.protocol.port import Stored
from headgate.wire.logs import Logs

UNKNOWN: Final = object()
"""The answer where memory does not know: the question is carried out as for any reader."""
Show = Callable[[list[Stored]], list[Stored] | None]
"""Messages as the reader may see them; None where whoever is asked for them instead has to say."""


class CatalogHead(Protocol):
    """What is known of the catalog's newest revision; see `headgate.gateway.follower`."""

    @property
    def head(self) -> Stored | None:
        """The newest announced revision, as it is stored."""
        ...

    @property
    def published(self) -> dict[str, int]:
        """What there is of that revision."""
        ...


class MemoryAnswers:
    """Stands between one reader and the memory of its site.

    `attach` is told of every subject that the reader wants to be woken by, once.
    """

    def __init__(
        self, memory: SiteMemory, catalog: CatalogHead, logs: Logs, site: str, attach: Callable[[str], None]
    ) -> None:
        self._memory = memory
        self._catalog = catalog
        self._inbox = logs.inbox(site).name
        self._head = logs.head
        self._attach = attach
        self.listening: int | None = None
        """The number of the command by which the reader waits."""
        self._hinted = False
        self._asked: tuple[Any, tuple[int, int]] | None = None
        self.attached: set[str] = set()
        self.ask_log = False
        """Whether the next question for messages goes to the log, whatever memory says."""
        self._watch(logs.head)

    def _watch(self, subject: str) -> None:
        if subject not in self.attached:
            self.attached.add(subject)
            self._attach(subject)

    def answer(self, command: Any, show: Show) -> Any:
        """The answer to a command, `UNKNOWN` where memory does not have it."""
        match command:
            case port.Read(log, subject, after, limit) if log.name == self._inbox:
                self._watch(subject)
                found = None if self.ask_log else self._memory.read(subject, after, limit)
                self.ask_log = False
                if found:
                    found = show(found)
                if found is None:
                    self._asked = command, self._memory.mark
                    return UNKNOWN
                return found
            case port.Last(_, self._head) if self._catalog.head is not None:
                return self._catalog.head
            case port.Subjects(_, pattern) if pattern in self._catalog.published:
                return dict(self._catalog.published)
        return UNKNOWN

    def answered(self, command: Any, found: Any) -> None:
        """The log has answered what memory did not know."""
        if self._asked is not None and self._asked[0] == command:
            if not found:
                self._memory.learn(command.subject, command.after, self._asked[1])
            self._asked = None

    def waits(self, command: Any) -> bool:
        """Whether memory will surely wake a reader that listens for these subjects."""
        return isinstance(command, port.Listen) and self.attached.issuperset(command.subjects)

    def listen(self, number: int) -> bool:
        """A reader waits, by the number of its command; False where something came since it last looked."""
        if self._hinted:
            self._hinted = False
            return False
        self.listening = number
        return True

    def hear(self) -> int | None:
        """Something has come: the number of the command that is answered by it, None where the reader does not wait."""
        number, self.listening = self.listening, None
        if number is None:
            self._hinted = True
        return number
