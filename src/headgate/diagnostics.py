"""What a running deployment says about itself, through Python's own `logging`.

Loggers are named for what they speak of: `headgate.relay.<site>`, `headgate.stream.<stream>`, and `headgate.service`,
`headgate.fabric`, `headgate.feeds` for the rest. Records carry `site` and `stream` as fields, so that JSON lines can be
searched by them. A program calls `configure` once; whoever only imports Headgate configures `logging` as usual.

An exception that is expected and survived is never swallowed in silence: `noted` takes the place of
`contextlib.suppress` and leaves a record.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, TextIO

from headgate.errors import HeadgateError, masked, nearest

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")
FIELDS: Final = ("site", "stream")

ROOT: Final = logging.getLogger("headgate")
ROOT.addHandler(logging.NullHandler())
SERVICE: Final = logging.getLogger("headgate.service")
FABRIC: Final = logging.getLogger("headgate.fabric")
CLIENT: Final = logging.getLogger("headgate.client")

Log = logging.Logger | logging.LoggerAdapter[logging.Logger]


class _About(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records carry fields."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, {**kwargs, "extra": {**(self.extra or {}), **(kwargs.get("extra") or {})}}


def site_log(site: str) -> Log:
    """The logger of a site's relay.

    >>> site_log("paris").name
    'headgate.relay.paris'
    """
    return _About(logging.getLogger(f"headgate.relay.{_word(site)}"), {"site": site})


def stream_log(stream: str) -> Log:
    """The logger of a stream: its query, its commits, its books."""
    return _About(logging.getLogger(f"headgate.stream.{_word(stream)}"), {"stream": stream})


def _word(name: str) -> str:
    """A name as one word of a logger's name, in which a dot would start another level."""
    return name.replace(".", "_")


class noted:  # noqa: N801 - it is used as `contextlib.suppress` is
    """Survive these errors in the block, and leave a record that says what could not be done and why."""

    def __init__(self, log: Log, what: str, *errors: type[BaseException], level: int = logging.DEBUG) -> None:
        self._log, self._what, self._errors, self._level = log, what, errors, level

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, self._errors):
            return False
        self._log.log(self._level, "%s: %s", self._what, error if isinstance(error, HeadgateError) else repr(error))
        return True


def announce(text: str) -> None:
    """A record of the service that is shown whatever the level: what the user of a program must read."""
    SERVICE.handle(SERVICE.makeRecord(SERVICE.name, logging.INFO, "", 0, text, (), None))


def configure(level: str = "warning", form: str = "text", to: TextIO | None = None) -> None:
    """Write Headgate's records from a level on as lines, by default to standard error. Passwords in URLs are masked."""
    for given, known, option in ((level, LEVELS, "--log-level"), (form, FORMATS, "--log-format")):
        if given not in known:
            close = nearest(given, known)
            hint = f"did you mean {close!r}?" if close else f"one of {', '.join(known)}"
            raise HeadgateError(f"{option} {given!r} is not known", hint=hint)
    handler = logging.StreamHandler(to or sys.stderr)
    handler.setFormatter(_JsonLines() if form == "json" else _TextLines())
    for old in list(ROOT.handlers):
        ROOT.removeHandler(old)
    ROOT.addHandler(handler)
    ROOT.setLevel(level.upper())
    ROOT.propagate = False


def writes_json() -> bool:
    """Whether this process was configured to write JSON lines."""
    return any(isinstance(handler.formatter, _JsonLines) for handler in ROOT.handlers)


class _TextLines(logging.Formatter):
    """`2026-01-31 12:00:00.123 WARNING headgate.relay.paris: ...`, in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        when = _when(record).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        text = f"{when} {record.levelname} {record.name}: {record.getMessage()}"
        return masked(f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text)


class _JsonLines(logging.Formatter):
    """One JSON object a record: time, level, logger, message, and site, stream and traceback where there are any."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": _when(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": masked(record.getMessage()),
        }
        fields: Mapping[str, Any] = vars(record)
        document |= {name: fields[name] for name in FIELDS if name in fields}
        if record.exc_info:
            document["traceback"] = masked(self.formatException(record.exc_info))
        return json.dumps(document, ensure_ascii=False, default=str)


def _when(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)
