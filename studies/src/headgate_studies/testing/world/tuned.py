"""The live tuner in virtual time: the units that relays run, and home's part, over the simulated fabric.

Home is the product's own `TuningRun` and `TuningHistory`; only the catalog is missing, in whose place a plan is held.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

from headgate.model import Plan
from headgate.protocol.kernel import Machine
from headgate.protocol.port import MachinePort
from headgate.protocol.reports import TunedStep
from headgate.protocol.tuning import AskCommit, AskHome, CommitWord, HomeWord, TellCost, TellMoved
from headgate.protocol.tuning_codec import decode_tuning, encode_tuning
from headgate.relay.unit import UnitMachine
from headgate.service.tuning_history import TuningHistory
from headgate.service.tuning_run import RefusedChangeError, TuningRun
from headgate.virtual.fabric import SimulatedFabric
from headgate.virtual.process import Instance
from headgate.virtual.server import SimulatedServer
from headgate.wire.logs import Logs


class TunedHome(Machine):
    """Home without a catalog: the plan in force is `plan`, each change is the next revision."""

    def __init__(self, run: TuningRun, plan: Plan, logs: Logs) -> None:
        super().__init__("home")
        self.tuning, self.plan, self.revision = run, plan, 1
        self.history = TuningHistory(run)
        self.plans = [plan]
        port = MachinePort(self, logs, 1 << 20)
        self.subjects = {logs.tuner(site): site for site in run.scene.names}
        for subject, site in self.subjects.items():
            port.serve(subject, self._answering(site))

    def _answering(self, site: str) -> Callable[[bytes], Awaitable[bytes]]:
        async def answer(data: bytes) -> bytes:
            asked = decode_tuning(data, (AskHome, AskCommit, TellCost, TellMoved))
            if isinstance(asked, AskCommit):
                return encode_tuning(self._commit(site, asked))
            if isinstance(asked, TellCost):
                self.history.cost(asked, int(self.now.wall_s * 1000))
            if isinstance(asked, TellMoved):
                self.tuning.unlock(site, asked.period)
            known = asked.run if isinstance(asked, AskHome) else self.tuning.number
            word: HomeWord = self.tuning.word(site, known, self.plan)
            return encode_tuning(word)

        return answer

    def _commit(self, site: str, asked: AskCommit) -> CommitWord:
        time_ms = int(self.now.wall_s * 1000)
        try:
            self.tuning.lock(site, asked, self.now.monotonic_s)
            self.plan = self.tuning.changed(self.plan, site, asked)
        except RefusedChangeError as error:
            self.tuning.unlock(site, asked.period)
            self.history.changed(site, asked, time_ms, 0, str(error))
            return CommitWord(done=False, why=str(error))
        self.revision += 1
        self.plans.append(self.plan)
        self.history.changed(site, asked, time_ms, self.revision)
        return CommitWord(done=True, revision=self.revision)


class SimulatedTuning:
    """A run with all its sites in virtual time. `loss` is the part of messages, or of their answers, that gets lost."""

    def __init__(self, run: TuningRun, plan: Plan, *, loss: float = 0.0, seed: int = 0) -> None:
        logs = Logs("hg")
        self.fabric = SimulatedFabric(SimulatedServer(), logs, Random(seed))
        self.fabric.wall_s = run.began_s
        self.fabric.failed = self._failed
        self.home = TunedHome(run, plan, logs)
        self.units: dict[str, UnitMachine] = {}
        self._instances: dict[str, Instance] = {}
        at_home = Instance(self.fabric, "home", 0, self.home, None)
        for subject in self.home.subjects:
            self.fabric.serve(subject, at_home)
        at_home.feed(None)
        for site in run.scene.names:
            self.start(site)
        if loss:
            for site in run.scene.names:
                for link in self.fabric.network.between(site, "server"):
                    link.loss = loss

    def _failed(self, instance: Instance, error: Exception) -> None:
        raise AssertionError(f"{instance.process} has failed") from error

    def start(self, site: str) -> None:
        """Start the unit of a site, with nothing but its name."""
        machine = self.units[site] = UnitMachine(site, self.fabric.logs, max_payload=1 << 20)
        instance = self._instances[site] = Instance(self.fabric, site, len(self._instances), machine, None)
        self.fabric.serve(machine.service, instance)
        instance.feed(None)

    def kill(self, site: str) -> None:
        """End the unit of a site without a word."""
        self._instances[site].kill()

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.fabric.queue.run(self.fabric.queue.now + seconds)

    @property
    def steps(self) -> list[TunedStep]:
        """What was put in force or refused."""
        return self.home.history.steps
