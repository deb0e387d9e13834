"""Sites that join and leave those that serve a gridded stream: parts are halved and handed on, as in a CAN.

A part is a subscription with `serves`. The new ones are made first, in one change, and are filled while the old ones
still are; where parts overlap the later one counts. Then the old ones end.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Any, Final

from headgate.client import Client, ClientError
from headgate.grid.errors import GridError
from headgate.grid.layout import layout_of
from headgate.grid.serving.served_grid import ServedGrid
from headgate.grid.serving.tiling import Tile, heir_of, split_for
from headgate.protocol.reports import GridReport
from headgate.protocol.serving_brief import OwnPart, parts_of
from headgate.service.reports import read_reports
from headgate.wire.snapshot import Snapshot

_WAIT_S: Final = 15.0
_LOOK_S: Final = 0.5


async def join_parts(client: Client, stream: str, site: str, bandwidth: str) -> dict[str, Any]:
    """Give a site half of the largest part of a stream, or all of it where nobody serves it."""
    snapshot = await client.snapshot()
    grid, parts = _known(snapshot, stream)
    if site not in snapshot.deployment.sites:
        raise ClientError(f"no site {site!r}", kind="unknown")
    if not parts:
        return await _change(client, grid, stream, {_name(stream, site): (site, grid.whole, bandwidth)}, [])
    tiles = {part.subscription: part.tile for part in parts}
    try:
        cut, stays, given = split_for(tiles)
    except ValueError as error:
        raise GridError(str(error), where=f"stream {stream!r}") from error
    owner = next(part for part in parts if part.subscription == cut)
    rest = f"{owner.bytes_per_s!r} B/s"
    made = {_name(stream, owner.site): (owner.site, stays, rest), _name(stream, site): (site, given, bandwidth)}
    return await _change(client, grid, stream, made, [cut])


async def leave_parts(client: Client, stream: str, site: str) -> dict[str, Any]:
    """Hand every part of a site on to others."""
    grid, parts = _known(await client.snapshot(), stream)
    known = {part.subscription: part for part in parts}
    tiles = {name: part.tile for name, part in known.items()}
    mine = [name for name, part in known.items() if part.site == site]
    if not mine:
        raise ClientError(f"{site!r} serves nothing of {stream!r}", kind="unknown")
    if len(mine) == len(known):
        raise ClientError(
            f"{site!r} is the last that serves {stream!r}", hint="end its subscription to serve the stream no more"
        )
    made: dict[str, tuple[str, Tile, str]] = {}
    ended: list[str] = list(mine)
    for name in mine:
        others = {each: tile for each, tile in tiles.items() if each == name or each not in mine}
        heir, both = heir_of(others, name)
        owner, gone = known.get(heir), tiles.pop(name)
        heir_site = owner.site if owner is not None else made[heir][0]
        bandwidth = f"{owner.bytes_per_s!r} B/s" if owner is not None else made[heir][2]
        fresh = _name(stream, heir_site)
        if both is None:  # it has two parts then, and shares its bandwidth between them
            made[fresh] = (heir_site, gone, bandwidth)
            tiles[fresh] = gone
            continue
        made[fresh] = (heir_site, both, bandwidth)
        tiles[fresh] = both
        del tiles[heir]
        if heir in made:
            del made[heir]
        else:
            ended.append(heir)
    return await _change(client, grid, stream, made, ended)


def _known(snapshot: Snapshot, stream: str) -> tuple[ServedGrid, list[OwnPart]]:
    """The grid of a stream and its parts, but for those that later ones have taken the place of."""
    found = snapshot.deployment.streams.get(stream)
    layout = None if found is None else layout_of(found)
    if layout is None:
        raise ClientError(f"{stream!r} is no gridded stream", kind="unknown")
    parts: list[OwnPart] = []
    for part in parts_of(snapshot, stream):
        parts = [each for each in parts if not _inside(each.tile, part.tile)] + [part]
    return ServedGrid(layout), parts


def _inside(one: Tile, other: Tile) -> bool:
    across = other.left <= one.left and one.right <= other.right
    return across and other.bottom <= one.bottom and one.top <= other.top


def _name(stream: str, site: str) -> str:
    return f"{stream}-at-{site}-{secrets.token_hex(2)}"


async def _change(
    client: Client, grid: ServedGrid, stream: str, made: dict[str, tuple[str, Tile, str]], ended: list[str]
) -> dict[str, Any]:
    documents = {
        name: {"stream": stream, "site": site, "region": grid.region(tile), "serves": bandwidth}
        for name, (site, tile, bandwidth) in made.items()
    }
    await client.subscribe_many(documents)
    filled = await _filled(client, stream, {name: each[0] for name, each in made.items()}) if ended else False
    for name in ended:
        await client.unsubscribe(name)
    return {"made": {name: each["region"] for name, each in documents.items()}, "ended": ended, "filled": filled}


async def _filled(client: Client, stream: str, made: dict[str, str]) -> bool:
    """Wait until every new part has rows or a while is over: a stream may be idle."""
    until = time.monotonic() + _WAIT_S
    while time.monotonic() < until:
        reports = await read_reports(client.fabric, GridReport)
        served = {site: report.streams[stream] for site, report in reports.items() if stream in report.streams}
        held = [served[site].owns.get(name) for name, site in made.items() if site in served]
        if sum(rows is not None and rows.upto > 0 for rows in held) == len(made):
            return True
        await asyncio.sleep(_LOOK_S)
    return False
