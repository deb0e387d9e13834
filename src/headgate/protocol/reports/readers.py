"""What is reported of those who read: devices that listen to a subscription, and members of groups."""

from __future__ import annotations

import msgspec

from headgate.protocol.reports.report import Report
from headgate.wire.record import Count


class DeviceDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """Rows on their way to devices: the reader's position after them, for which sessions they are kept, and where.

    `places` has the place of each message in the server's log, by its row's sequence number; `last` is the largest.
    """

    position: str
    sessions: list[str]
    last: Count
    places: dict[str, Count]


class DevicesReport(Report, frozen=True, kw_only=True):
    """What is on its way to the devices that listen to one subscription, so that a restart sends nothing twice."""

    kind_name = "devices-report"
    sent: list[DeviceDelivery]


class MemberReport(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a group: rows that it holds, that it was dealt and that it is done with since it came.

    One that is `stalled` has let a lease run out, and has not asked since.
    """

    held: Count = 0
    dealt: Count = 0
    done: Count = 0
    stalled: bool = False


class GroupsReport(Report, frozen=True, kw_only=True):
    """By group that is dealt now, the members that are there."""

    kind_name = "groups-report"
    groups: dict[str, dict[str, MemberReport]]
