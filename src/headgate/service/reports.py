"""What relays, jobs and the service last reported about themselves, read from the state log."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from headgate.protocol.port import LogPort
from headgate.protocol.reports import RelayReport, Report
from headgate.relay.core import Key
from headgate.wire.frame import WireError

R = TypeVar("R", bound=Report)


def decode_relay(data: bytes) -> RelayReport:
    """Read a relay's report; one that names an output that is none is refused."""
    report = RelayReport.decode(data)
    for token in report.outputs:
        try:
            Key.parse(token)
        except ValueError:
            raise WireError(f"'outputs' names {token!r:.40}, which is no output") from None
    return report


async def read_reports(port: LogPort, form: type[R], about: str = "") -> dict[str, R]:
    """What was last reported about something, by name; a report that cannot be read counts as none.

    `about` is what it is about where the kind of the report does not say so.
    """
    logs = port.logs
    reader: Any = decode_relay if form is RelayReport else form.decode
    found: dict[str, R] = {}
    place = 0
    while batch := await port.read(logs.state, f"{logs.namespace}.stats.{about or form.about()}.*", place):
        place = batch[-1].sequence
        for stored in batch:
            report: R | None = port.quarantine.take(logs.state, stored, reader, "taken as no report")
            if report is not None:
                found[stored.subject.rsplit(".", 1)[1]] = report
    return found


def shown(report: Report | None) -> dict[str, Any]:
    """A report for a JSON document, nothing where there is none."""
    found: dict[str, Any] = {} if report is None else msgspec.to_builtins(report, str_keys=True)
    return found
