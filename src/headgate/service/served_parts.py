"""What sites serve of gridded streams, as they last reported it."""

from __future__ import annotations

from typing import Any

from headgate.fabric import Fabric
from headgate.protocol.reports import GridReport
from headgate.service.reports import read_reports, shown
from headgate.wire.snapshot import Snapshot


async def read_parts(fabric: Fabric, snapshot: Snapshot) -> dict[str, Any]:
    """By site, the streams that it serves: what it owns, its replicas, its readers and its load."""
    serving = {each.site for each in snapshot.deployment.subscriptions.values() if each.serves_bytes_per_s is not None}
    reports = await read_reports(fabric, GridReport) if serving else {}
    return {site: shown(reports.get(site)) for site in sorted(serving)}


def part_lines(parts: dict[str, Any]) -> list[str]:
    """What `headgate status` prints: a line for each site and stream."""
    lines = []
    for site, report in parts.items():
        for stream, each in report.get("streams", {}).items():
            replicas = ", ".join(f"{name or 'all'} from {copy['from']}" for name, copy in each["replicas"].items())
            lines.append(
                f"{site} serves {stream}: owns {', '.join(each['owns'])}; "
                f"replicas {replicas or 'none'}; {each['readers']:,} readers, "
                f"{each['bytes_per_s'] / 1000:,.1f} of {each['bandwidth_bytes_per_s'] / 1000:,.1f} kB/s, "
                f"{each['load']:.0%} promised, {each['refused']:,} refused"
            )
        lines += [f"{site} serves {stream} as before: {why}" for stream, why in report.get("problems", {}).items()]
    return lines
