"""The witness: how far each log has got, written into the catalog every few seconds.

NATS alone cannot tell that it was replaced by an older copy of itself. The catalog can, as it has seen the logs further
on. What is lost in the seconds since it looked is found by whoever was ahead: a reader by its position, the Spark job
by its checkpoint. A file of a log that is gone leaves its end where it was: so the last look, when everything has
stopped, also counts messages.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from headgate.catalog import Catalog
from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric import Fabric
from headgate.service.identity import IdentityError, Misfit
from headgate.service.survey import COUNTED, own_logs

_EVERY_S: Final = 5.0
_logger = logging.getLogger("headgate.witness")


class Witness:
    """Looks at all logs from time to time. A log that has gone backwards while the deployment runs ends it."""

    def __init__(self, fabric: Fabric, catalog: Catalog, every_s: float = _EVERY_S) -> None:
        self._fabric = fabric
        self._catalog = catalog
        self._every_s = every_s
        self._seen: dict[str, int] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                await self.look()
            except IdentityError:
                raise
            except HeadgateError as error:  # NATS or the catalog is away for a moment: the next look finds them
                _logger.warning("the ends of the logs could not be noted: %s", error)
            await asyncio.sleep(self._every_s)

    async def look(self, *, last: bool = False) -> None:
        """Note the last sequence number of every log; in the last look, also how many messages it has."""
        infos = await own_logs(self._fabric)
        found = {name: info.last for name, info in infos.items()}
        wrong = [
            Misfit(
                f"the log {name} "
                + (f"ends at message {found[name]:,}" if name in found else "is gone")
                + f", and was seen at {seen:,} since this start: the NATS store was exchanged under the deployment",
                "restore the NATS store",
            )
            for name, seen in self._seen.items()
            if found.get(name, -1) < seen
        ]
        if wrong:
            raise IdentityError(wrong)
        if found != self._seen or last:
            counts = {name + COUNTED: info.messages for name, info in infos.items()} if last else {}
            await asyncio.to_thread(self._catalog.set_witness, {**found, **counts})
            self._seen = found

    async def close(self) -> None:
        """Look a last time, when everything else has stopped; not where nothing was started on what is stored."""
        if not self._seen:
            return
        with noted(SERVICE, "how far the logs are is noted with the next look", HeadgateError):
            await self.look(last=True)
