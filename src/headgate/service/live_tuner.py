"""The live tuner at home: begins runs, tells sites what holds, puts changes in force and keeps the history.

It works as long as `options: {planner: tuner}` is in force: then the tuner alone gives sites other parents, and the
central planner keeps to judging (`Deployment.tuned`). A change that the owner of a unit asks for is a revision of the
catalog like any other, in force from the next micro-batch on, so nothing is lost by it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from headgate.catalog import Edit
from headgate.diagnostics import SERVICE
from headgate.errors import HeadgateError
from headgate.fabric import Fabric, FabricError
from headgate.fabric.serving import RequestCall
from headgate.model import Plan, parse_duration
from headgate.planning.measured import with_relays_of
from headgate.protocol.reports import TuningReport
from headgate.protocol.tuning import AskCommit, AskHome, CommitWord, HomeQuestion, HomeWord, TellCost, TellMoved
from headgate.protocol.tuning_codec import decode_tuning, encode_tuning
from headgate.service.measuring import Look, looked
from headgate.service.observer import Observer
from headgate.service.requests import Handler, Request, texts_of
from headgate.service.reshaping import MakeChange
from headgate.service.tuning_history import TuningHistory
from headgate.service.tuning_run import RefusedChangeError, TuningRun, Wishes, read_modes, without_plan
from headgate.tuning.measured import read_measured
from headgate.tuning.scene import Scene
from headgate.wire.frame import WireError
from headgate.wire.snapshot import Snapshot

_LOOK_S: Final = 1.0
_RATES_S: Final = 30.0
_OTHERWISE: Final = 1.25
"""A run begins anew when a stream has so many times more or fewer rows a second than it was told."""
STATUS = Callable[[], Awaitable[dict[str, Any]]]


class NotTheOwnerError(HeadgateError):
    """Somebody wants plans from whom the deployment does not let make them."""

    usual_kind = "conflict"


class LiveTuner:
    """The tuner of one deployment. `run` works until it is cancelled; `history` is that of the run that is on."""

    def __init__(
        self, fabric: Fabric, observer: Observer, current: Callable[[], Snapshot], make: MakeChange, status: STATUS
    ) -> None:
        """`current` is what is in force, `make` changes the catalog and publishes what came of it."""
        self._fabric = fabric
        self._observer = observer
        self._current = current
        self._make = make
        self._status = status
        self._given: Wishes | None = None
        self._number = 0
        self._rates: Mapping[str, float] = {}
        self._looked_s = 0.0
        self._before: dict[str, Any] | None = None
        self._refused = ""
        self._turn = asyncio.Lock()
        self.history: TuningHistory | None = None

    @property
    def verbs(self) -> dict[str, Handler]:
        """The requests of operators."""
        return {"tune": self._tune}

    @property
    def tuning(self) -> TuningRun | None:
        """The run that is on."""
        return None if self.history is None else self.history.run

    async def run(self) -> None:
        """Answer sites, and begin a run when one is due, until cancelled."""
        end = await self._fabric.receive(self._fabric.logs.tuner("*"), self._take)
        try:
            while True:
                try:
                    await self.look()
                except HeadgateError as error:
                    if str(error) != self._refused:
                        SERVICE.warning("the tuner does not run: %s", error)
                    self._refused = str(error)
                await asyncio.sleep(_LOOK_S)
        finally:
            await end()

    async def look(self) -> None:
        """End the run where the tuner does not own the plan; begin one where there is none or another one is due."""
        snapshot = self._current()
        if not snapshot.deployment.tuned or snapshot.plan is None:
            if self.history is not None:
                self.history = None
                await self._report()
            return
        seen, run = (without_plan(snapshot.deployment), self._given), self.tuning
        if run is not None and run.seen == seen and not await self._moved_on(snapshot):
            return
        async with self._turn:
            await self._begin(snapshot, seen)

    async def _moved_on(self, snapshot: Snapshot) -> bool:
        """Whether streams have become clearly faster or slower than the run was told."""
        if time.monotonic() - self._looked_s < _RATES_S:
            return False
        self._looked_s = time.monotonic()
        flows = await self._observer.measured_aside(snapshot)
        now = {name: found.rate_rows_per_s for name, found in flows.streams.items()}
        return any(
            rate > 0 and not 1 / _OTHERWISE <= self._rates.get(name, 0.0) / rate <= _OTHERWISE
            for name, rate in now.items()
        )

    async def _begin(self, snapshot: Snapshot, seen: Any) -> None:
        wishes, plan = self._given or Wishes.of(snapshot.deployment), snapshot.plan
        assert plan is not None
        found = await self._measured(snapshot)
        self._rates = {flow.name: flow.rate_rows_per_s for flow in found.problem.flows}
        self._looked_s = time.monotonic()
        self._number = max(self._number + 1, int(time.time() * 1000))

        def work() -> TuningRun:
            scene = Scene(with_relays_of(found.problem, plan), wishes.measured or found.measured)
            return TuningRun.begin(self._number, time.time(), wishes, scene, plan, seen)

        self.history = TuningHistory(await asyncio.to_thread(work), self.history)
        self._refused = ""
        await self._report()

    async def _measured(self, snapshot: Snapshot) -> Look:
        """Rates, sizes, link bandwidths and losses as relays and the observer have measured them so far."""
        after = await self._status()
        before, self._before = self._before or after, after
        flows = await self._observer.measured_aside(snapshot)
        return await asyncio.to_thread(looked, snapshot, before, after, flows)

    async def _tune(self, request: Request) -> dict[str, Any]:
        """Begin a run by other wishes than the file's (`objective`, `constraints`, `mode`, `every`, ...).

        With `file` the deployment file's wishes are in force again.
        """
        snapshot = self._current()
        if not snapshot.deployment.tuned:
            raise NotTheOwnerError(
                "the central planner owns the plan of this deployment, so the tuner changes nothing",
                hint="let the tuner own it: `options: {planner: tuner}` in the deployment file, or"
                " `headgate change --file`; `headgate tune --watch` only proposes",
            )
        wishes = Wishes.of(snapshot.deployment)
        plain = ("objective", "levels", "approximate")
        given: dict[str, Any] = {name: request[name] for name in plain if request.get(name) is not None}
        if request.get("constraints"):
            given["constraints"] = (*wishes.constraints, *texts_of(request, "constraints"))
        if request.get("mode") is not None:
            given["modes"] = read_modes(request["mode"])
        if request.get("every") is not None:
            given["every_s"] = max(parse_duration(str(request["every"])), 0.5)
        if request.get("measured") is not None:
            given["measured"] = read_measured(request["measured"], snapshot.deployment.sites)[0]
        before = self._given
        if given or request.get("file") is True:
            names = Wishes.__slots__
            merged = {**{name: getattr(wishes, name) for name in names}, **given}
            self._given = Wishes(**merged) if given else None
        try:
            await self.look()
        except HeadgateError:
            self._given = before
            raise
        return {"run": self._number}

    # -- sites

    async def _take(self, call: RequestCall) -> None:
        site = call.subject.rsplit(".", 1)[1]

        async def answer(data: bytes) -> bytes:
            try:
                asked = decode_tuning(data, (AskHome, AskCommit, TellCost, TellMoved))
            except WireError as error:
                SERVICE.debug("%s says something that is no question: %s", site, error)
                return b""
            return encode_tuning(await self.answer(site, asked))

        await call.answer(answer)

    async def answer(self, site: str, asked: HomeQuestion) -> HomeWord | CommitWord:
        """Answer a site."""
        history, plan = self.history, self._current().plan
        if history is None or plan is None:
            return CommitWord(done=False, why="nobody tunes") if isinstance(asked, AskCommit) else HomeWord(0)
        run = history.run
        if isinstance(asked, AskCommit):
            return await self._commit(history, site, asked)
        if isinstance(asked, TellMoved) and asked.run == run.number:
            run.unlock(site, asked.period)
        if isinstance(asked, TellCost) and asked.run == run.number:
            history.cost(asked, int(time.time() * 1000))
            await self._report()
        known = asked.run if isinstance(asked, AskHome) else run.number
        return run.word(site, known, plan)

    async def _commit(self, history: TuningHistory, site: str, asked: AskCommit) -> CommitWord:
        """Put a change in force, or say why not."""
        run = history.run
        moves = ", ".join(
            f"{run.scene.names[one]} below {run.scene.names[other]}"
            for one, other, _ in asked.moves
            if max(one, other) < len(run.scene.names)
        )

        def change(edit: Edit, before: Snapshot) -> dict[str, Any]:
            if self.history is not history or not before.deployment.tuned or before.plan is None:
                raise RefusedChangeError("the run is over")
            edit.set_plan(run.changed(before.plan, site, asked))
            return {}

        try:
            run.lock(site, asked, time.monotonic())
            made = await self._make(f"tuner: {asked.name[:60]}: {moves}"[:200], {"operator": "tuner"}, change)
        except HeadgateError as error:
            run.unlock(site, asked.period)
            history.changed(site, asked, int(time.time() * 1000), 0, str(error))
            await self._report()
            return CommitWord(done=False, why=str(error)[:300])
        revision = int(made["revision"])
        history.changed(site, asked, int(time.time() * 1000), revision)
        await self._report()
        return CommitWord(done=True, revision=revision)

    async def _report(self) -> None:
        now_ms = int(time.time() * 1000)
        if self.history is None:
            report = TuningReport(time_ms=now_ms, state="off")
        else:
            trees = (self._current().plan or Plan({})).trees
            report = self.history.report(now_ms, {name: dict(tree.parents) for name, tree in trees.items()})
        try:
            await self._fabric.publish(self._fabric.logs.stats("tuning", "_"), report.encode())
        except FabricError as error:
            SERVICE.debug("what the tuner did is reported later: %s", error)
