"""Walks everything that a state directory holds and checks it: what is damaged is named with its place.

Files: every one that has a check (`headgate.service.file_checks`), before a server is started, as that makes some of
them again. The catalog: every row that is in force. The audit: its chain. Logs: every message carries a checksum,
except rows as publishers wrote them (`headgate.service.stored_messages`); of a host that has joined those of its own
server. A server that does not run is started for as long as it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headgate.catalog import Catalog
from headgate.errors import HeadgateError
from headgate.fabric import EmbeddedServer, Fabric, FabricError, Stored
from headgate.fabric.administration import LogState
from headgate.fabric.host_notes import lacking, read_seen
from headgate.fabric.membership import MEMBER_FILE
from headgate.fabric.server import running_url
from headgate.protocol.published import load_snapshot
from headgate.service.anchoring import read_anchor
from headgate.service.audit import AUDIT_FILE, verify_audit
from headgate.service.exclusive import exclusive
from headgate.service.file_checks import check_files
from headgate.service.identity import IdentityError, misfits
from headgate.service.stored_messages import check_message
from headgate.service.survey import short_logs, survey
from headgate.wire.frame import WireError
from headgate.wire.logs import Log, Logs
from headgate.wire.unreadable import UnreadableError, decode_message

_AT_ONCE: Final = 256
CATALOG_FILE: Final = "catalog.db"


@dataclass
class Verified:
    """What was looked at, in numbers, and what is wrong with it, in sentences."""

    counts: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def add(self, what: str, count: int = 1) -> None:
        """Count what was looked at."""
        self.counts[what] = self.counts.get(what, 0) + count


async def verify_directory(state_dir: Path, logs: Logs, catalog: str | None = None) -> Verified:
    """Check a state directory, of a deployment or of hosts that have joined one, whether it runs or not.

    `catalog` is the deployment's database where that is not in the directory.

    Raises:
        HeadgateError: There is nothing to check.
    """
    hosts = _hosts(state_dir)
    database, has_logs = state_dir / CATALOG_FILE, (state_dir / "nats" / "data").exists()
    is_home = catalog is not None or has_logs or database.exists()
    if not is_home and not hosts and not (state_dir / MEMBER_FILE).exists():
        raise HeadgateError(
            f"there is no deployment in {state_dir}, and no host has joined one", hint="give --state-dir"
        )
    place = catalog or f"sqlite:///{database.absolute()}"
    found = Verified()
    count, found.wrong = await asyncio.to_thread(check_files, state_dir)
    found.add("files", count)
    if is_home and not has_logs:
        found.wrong.append(f"the NATS store of the deployment is gone: there is a catalog and no {state_dir}/nats/data")
    if is_home:
        _verify_catalog(found, place)
    if has_logs:
        try:
            runs = running_url(state_dir) is not None
            with nullcontext() if runs else exclusive(state_dir):
                async with _opened(state_dir, logs, found) as fabric:
                    await _verify_home(found, fabric, state_dir, place)
                    if not runs:
                        await _verify_fit(found, fabric, state_dir, place)
        except HeadgateError as error:
            _say(found, str(error))
    for host in hosts:
        found.add("hosts")
        try:
            async with _opened(host, logs, found) as fabric:
                await _verify_host(found, fabric, host)
        except HeadgateError as error:
            _say(found, f"sites/{host.name}: {error}")
    return found


def _hosts(state_dir: Path) -> list[Path]:
    """The directories of sites that have a server of their own here."""
    return [place for place in sorted(state_dir.glob("sites/*")) if (place / "nats").is_dir()]


async def _verify_home(found: Verified, fabric: Fabric, state_dir: Path, catalog: str) -> None:
    """Check the logs of a deployment, and what has to fit them."""
    try:
        newest = verify_audit(state_dir / AUDIT_FILE, await read_anchor(fabric))
        found.add("records of the audit", newest.number)
    except HeadgateError as error:
        _say(found, str(error))
    infos = await fabric.infos(fabric.logs.everything)
    await _verify_logs(found, fabric, infos, short_logs(infos, _witness(catalog)))
    await _verify_tables(found, fabric)


async def _verify_fit(found: Verified, fabric: Fabric, state_dir: Path, catalog: str) -> None:
    """Say what does not fit together, and so would keep the deployment from starting."""
    try:
        with Catalog.open(catalog) as opened:
            wrong = misfits(await survey(fabric, opened, catalog, state_dir / "checkpoints"))
    except HeadgateError as error:
        _say(found, str(error))
        return
    if wrong:
        _say(found, str(IdentityError(wrong)))


async def _verify_host(found: Verified, fabric: Fabric, host: Path) -> None:
    """Check the logs of a site that has a server of its own."""
    infos = await fabric.infos(fabric.logs.everything)
    missing: dict[str, int] = {}
    with suppress(WireError):  # the file was named
        missing = lacking(infos, read_seen(host / "nats"))
    await _verify_logs(found, fabric, infos, missing)


async def _verify_logs(
    found: Verified, fabric: Fabric, infos: Mapping[str, LogState], missing: Mapping[str, int]
) -> None:
    """Check every message; `missing` are numbers of messages by log that there were at the last stop."""
    for name, count in sorted(missing.items()):
        found.wrong.append(f"the log {name} has lost {count:,} messages since the last stop: files are damaged or gone")
    for name, state in sorted(infos.items()):
        found.add("logs")
        if state.lost:
            numbers = ", ".join(map(str, state.lost[:10]))
            found.wrong.append(
                f"the NATS server has lost {len(state.lost)} messages of log {name} to damaged files: {numbers}"
            )
        read = 0
        async for stored in _messages(fabric, name):
            found.add("messages")
            read += 1
            try:
                decode_message(name, stored, lambda data, subject=stored.subject: check_message(subject, data))  # type: ignore[misc]
            except UnreadableError as error:
                found.wrong.append(str(error))
        if read < state.messages and (await fabric.infos(fabric.logs.everything)).get(name) == state:
            found.wrong.append(
                f"{state.messages - read:,} messages of log {name} cannot be read: its files are damaged"
            )


@asynccontextmanager
async def _opened(state_dir: Path, logs: Logs, found: Verified) -> AsyncIterator[Fabric]:
    """A connection to the server of a directory, which is started where it does not run."""
    url = running_url(state_dir)
    if url is not None:
        async with await Fabric.connect(url, logs) as fabric:
            yield fabric
        return
    server = EmbeddedServer(state_dir, sync_always=False)
    try:
        await asyncio.to_thread(server.start)
        found.wrong += [
            f"the description of log {name} was damaged, and is put back from its copy" for name in server.mended
        ]
        found.wrong += [
            f"the description of log {log.name} is damaged, and has no copy: {log}" for log in server.left_out
        ]
        async with await Fabric.connect(server.url, logs) as fabric:
            yield fabric
    finally:
        await asyncio.to_thread(server.stop)


def _say(found: Verified, sentence: str) -> None:
    """Add what is wrong, unless it was said of the same file before."""
    if not any(sentence in each for each in found.wrong):
        found.wrong.append(sentence)


def _verify_catalog(found: Verified, catalog: str) -> None:
    try:
        with Catalog.open(catalog) as opened:
            opened.verify()
            found.add("catalog")
    except HeadgateError as error:
        found.wrong.append(str(error))


def _witness(catalog: str) -> Mapping[str, int]:
    """How far the logs were at the last stop; nothing where the catalog cannot say."""
    try:
        with Catalog.open(catalog) as opened:
            return opened.witness()
    except HeadgateError:
        return {}  # that was said


async def _messages(fabric: Fabric, name: str) -> AsyncIterator[Stored]:
    log, place = Log(name, (fabric.logs.everything,), 0), 0
    while True:
        try:
            found = await fabric.read(log, fabric.logs.everything, place, limit=_AT_ONCE)
        except FabricError as error:
            raise HeadgateError(f"log {name} cannot be read behind message {place}: {error}") from error
        for stored in found:
            yield stored
        if not found:
            return
        place = found[-1].sequence


async def _verify_tables(found: Verified, fabric: Fabric) -> None:
    """Read every published revision of the catalog as whoever runs from it would."""
    logs = fabric.logs
    for subject in await fabric.subjects(logs.tables, logs.any_table):
        revision = subject.rsplit(".", 1)[1]
        if revision.isdigit():
            try:
                await load_snapshot(fabric, int(revision))
                found.add("revisions")
            except (WireError, HeadgateError) as error:
                found.wrong.append(str(error))
