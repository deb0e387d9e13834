"""What a start does with the state that it finds, before anything runs: refuse it, mend it, bring it up to the file."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headgate.catalog import Catalog
from headgate.catalog.rebuild import encode_filed
from headgate.fabric import EmbeddedServer, Fabric
from headgate.model import Deployment
from headgate.planning.search import Search
from headgate.service.audit import Author
from headgate.service.clerk import Clerk
from headgate.service.extending import first_plan
from headgate.service.identity import IdentityError, misfits, told_losses
from headgate.service.incarnations import accept_loss, new_incarnations
from headgate.service.mending import mend
from headgate.service.roots import refuse_moved_roots
from headgate.service.settings import Settings
from headgate.service.survey import (
    committed_heads,
    mark_checkpoints,
    own_logs,
    published_runs,
    rebuild_from_nats,
    refuse_second_service,
    survey,
)
from headgate.wire.identity import DEPLOYMENT_KEY, Incarnation, encode_runs

# Enough to better what QASDG builds for tens of sites in a fraction of a second; the same steps give the same plan.
_SEARCH: Final = Search(steps=20_000)


async def fit(fabric: Fabric, catalog: Catalog, settings: Settings, server: EmbeddedServer | None) -> list[str]:
    """Refuse to start on state that does not fit together, or declare the loss where that was asked for.

    Returns what was done about it, in sentences.
    """
    place, checkpoints = settings.catalog_place, settings.checkpoints
    told: list[str] = []
    await refuse_second_service(fabric)
    found = await survey(fabric, catalog, place, checkpoints)
    wrong = misfits(found)
    told += told_losses(found)
    fabric.marks = {DEPLOYMENT_KEY: found.identity.deployment}
    if found.damaged and all(misfit.acceptable for misfit in wrong):
        told += await mend(fabric, catalog, found.damaged)
        wrong = misfits(found := await survey(fabric, catalog, place, checkpoints))
    if settings.new_lineage and not settings.accept_loss:
        new = [misfit for misfit in wrong if misfit.checkpoint_only]
        told += await accept_loss(fabric, catalog, found, new, checkpoints)
        wrong = [misfit for misfit in wrong if misfit not in new]
    if wrong and not (settings.accept_loss and all(misfit.acceptable for misfit in wrong)):
        raise IdentityError(wrong)
    if wrong:
        told += server.move_left_out() if server else []
        told += await accept_loss(fabric, catalog, found, wrong, checkpoints)
    return told


async def begin_run(fabric: Fabric, catalog: Catalog, checkpoints: Path) -> None:
    """Note this start, by which positions from another past are recognised, and what a lost catalog needs."""
    logs, identity = fabric.logs, catalog.snapshot().identity
    incarnations = {name: each.id for name, each in identity.incarnations.items()}
    mark_checkpoints(checkpoints, identity.deployment, incarnations)
    heads = {name: head or 0 for name, head in (await committed_heads(fabric, incarnations)).items()}
    published = await published_runs(fabric, await own_logs(fabric))
    runs = encode_runs(catalog.begin_run(heads, published))
    for subject, data in ((logs.runs, runs), (logs.filed, encode_filed(catalog.filed()))):
        await fabric.publish(subject, data)


async def apply_file(fabric: Fabric, clerk: Clerk, deployment: Deployment) -> None:
    """Make the catalog agree with the file, with incarnations for its new streams."""
    before = await clerk.run(lambda catalog: catalog.snapshot())
    await refuse_moved_roots(fabric, before.deployment, deployment)
    new = await new_incarnations(fabric, before.identity.incarnations, deployment.streams)
    await clerk.run(lambda catalog: _apply(catalog, deployment, new))


def _apply(catalog: Catalog, deployment: Deployment, incarnations: Mapping[str, Incarnation]) -> None:
    """Make the catalog agree with the file, and plan what that changes, as one revision."""
    with catalog.edit("apply") as edit:
        edit.author = Author("operator", f"{socket.gethostname()} pid {os.getpid()}")
        edit.apply(deployment, incarnations)
        after = edit.snapshot()
        if edit.made or after.plan is None:
            edit.set_plan(first_plan(after, deployment.plan, _SEARCH))


async def rebuild(fabric: Fabric, place: str) -> list[str]:
    """Rebuild the catalog from NATS; returns what was done, in sentences."""
    await refuse_second_service(fabric)
    snapshot, aside = await rebuild_from_nats(fabric, place)
    count = len(snapshot.deployment.subscriptions)
    told = [f"the catalog was rebuilt from NATS: revision {snapshot.revision} with {count:,} subscriptions"]
    return told if aside is None else [*told, f"the catalog that was there before was moved to {aside}"]
