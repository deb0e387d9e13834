"""The root of a stream stays where it is: its rows have their numbers from there, and its relay has to pass them on."""

from __future__ import annotations

from headgate.errors import HeadgateError
from headgate.fabric import Fabric, NoLogError
from headgate.model import Deployment


class MovedRootError(HeadgateError):
    """A deployment file gives a stream that holds rows another root."""

    def __init__(self, stream: str, before: str, now: str) -> None:
        super().__init__(
            f"stream {stream!r} has its root at {before!r} and holds rows that {before!r} has to pass on; "
            f"the file puts its root at {now!r}",
            where=f"streams.{stream}.root",
            hint=f"put `root: {before}` back, or give the stream at {now!r} another name",
        )


async def refuse_moved_roots(fabric: Fabric, before: Deployment, after: Deployment) -> None:
    """Refuse a file that moves the root of a stream of which anything was committed, before anything changes."""
    for name, stream in after.streams.items():
        known = before.streams.get(name)
        if known is None or known.root == stream.root:
            continue
        try:
            committed = await fabric.last(fabric.logs.root(name), fabric.logs.commit(name))
        except NoLogError:
            continue
        if committed is not None:
            raise MovedRootError(name, known.root, stream.root)
