"""The Spark jobs of a deployment: a process for each, restarted alone; a stream is never in two of them at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from headgate.fabric import Fabric
from headgate.model import Deployment, SparkJob
from headgate.pipeline.job import JobConfig
from headgate.protocol.reports import JobReport
from headgate.service.processes import JobProcess
from headgate.service.relays import Spawn
from headgate.service.settings import Settings

Configure = Callable[[str, int], JobConfig]
"""Gives the configuration of a job by its name and the number of its starts before."""
UNNAMED = ""


def jobs_wanted(deployment: Deployment) -> dict[str, SparkJob | tuple[str, ...]]:
    """The jobs of a deployment by name. Of the one without a name it is what it leaves to the others.

    It is not there where they leave nothing.

    >>> jobs_wanted(Deployment({}, {}))
    {'': ()}
    """
    others = tuple(sorted({stream for job in deployment.jobs.values() for stream in job.streams}))
    wanted: dict[str, SparkJob | tuple[str, ...]] = {}
    if not deployment.jobs or any(deployment.job_of(stream) == UNNAMED for stream in deployment.streams):
        wanted[UNNAMED] = others
    return wanted | dict(deployment.jobs)


def fitted(config: JobConfig, name: str, wanted: SparkJob | tuple[str, ...] | None) -> JobConfig:
    """A configuration with what is a job's own in it."""
    if not isinstance(wanted, SparkJob):
        return replace(config, others=wanted or ())
    return replace(
        config,
        name=name,
        streams=wanted.streams,
        master=wanted.master or config.master,
        trigger_s=config.trigger_s if wanted.trigger_s is None else wanted.trigger_s,
        partitions=wanted.partitions or config.partitions,
        spark_options={**config.spark_options, **wanted.spark},
    )


class Jobs:
    """Runs the jobs that a revision asks for. Their tasks belong to whoever spawns them."""

    def __init__(self, settings: Settings, configure: Configure) -> None:
        self._settings = settings
        self._configure = configure
        self._wanted: Mapping[str, SparkJob | tuple[str, ...]] = {}
        self._changing = asyncio.Lock()
        self._paused = False
        self.processes: dict[str, JobProcess] = {}

    def differs(self, deployment: Deployment) -> bool:
        """Whether a revision asks for other jobs than those that run."""
        return jobs_wanted(deployment) != self._wanted

    async def follow(self, deployment: Deployment, spawn: Spawn) -> None:
        """Run the jobs of a revision.

        A job whose streams or settings differ is ended before any other begins, so that no stream is in two of them.
        """
        async with self._changing:
            before, wanted = self._wanted, jobs_wanted(deployment)
            if before == wanted:
                return
            changed = [name for name in self.processes if before.get(name) != wanted.get(name)]
            await asyncio.gather(
                *(self.processes[name].pause() if name in wanted else self.processes[name].stop() for name in changed)
            )
            self._wanted = wanted
            for name in changed:
                if name not in wanted:
                    del self.processes[name]
                elif not self._paused:
                    self.processes[name].resume()
            for name in wanted.keys() - self.processes.keys():
                process = self.processes[name] = self._process(name)
                if self._paused:
                    await process.pause()
                spawn(process.run(), f"Spark job {name}".strip())

    def _process(self, name: str) -> JobProcess:
        def configure(restarts: int) -> JobConfig:
            return fitted(self._configure(name, restarts), name, self._wanted.get(name))

        return JobProcess(configure, self._settings.state_dir, self._settings.job_environment, name)

    async def unready(self, fabric: Fabric) -> dict[str, str]:
        """The jobs that do not take rows yet, with what each last said."""
        logs, found = fabric.logs, {}
        for name, process in self.processes.items():
            stored = await fabric.last(logs.state, logs.job_stats(name))
            report = fabric.quarantine.take(logs.state, stored, JobReport.decode) if stored else None
            state = report.state if report is not None and report.pid == process.pid else ""
            if state != "ready":
                found[name] = state
        return found

    async def pause(self) -> None:
        """Stop all of them for a while."""
        self._paused = True
        await asyncio.gather(*(process.pause() for process in self.processes.values()))

    def resume(self) -> None:
        """Let them run again."""
        self._paused = False
        for process in self.processes.values():
            process.resume()

    async def stop(self) -> None:
        """Stop all of them for good."""
        await asyncio.gather(*(process.stop() for process in self.processes.values()))
