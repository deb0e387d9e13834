"""The live loop: everything that `headgate up` runs, started in order and stopped in reverse."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import msgspec

from headgate.catalog import Catalog, Edit
from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric import EmbeddedServer, Fabric, cancel_all, in_daemon, keep_quarantine
from headgate.fabric.address import directory_of
from headgate.fabric.mqtt import prepare
from headgate.fabric.place import write_whole
from headgate.fabric.rolekeys import has_keys
from headgate.fabric.runner import run_machine
from headgate.fabric.vitals import keep_vitals
from headgate.fabric.wide import WideFabric
from headgate.model import Deployment, RequestLimits, parse_duration
from headgate.model.alerts import AlertRules
from headgate.pipeline.job import JobConfig
from headgate.planning.replan import warm
from headgate.protocol import kernel
from headgate.protocol.records import HostList
from headgate.relay.tables import Tables
from headgate.service.access import make_token
from headgate.service.alerts.watch import AlertWatch
from headgate.service.anchoring import keep_anchor, missing_records, store_anchor
from headgate.service.audit import HOME, Audit
from headgate.service.bypass import Bypass
from headgate.service.clerk import Clerk
from headgate.service.collecting.collectors import Collectors
from headgate.service.context_following import Following
from headgate.service.control import Control
from headgate.service.devices import DeviceDesk
from headgate.service.exclusive import exclusive
from headgate.service.extending import missed_constraints
from headgate.service.gate import Gate
from headgate.service.group_dealers import GroupDealers
from headgate.service.head_repair import HeadMachine
from headgate.service.heartbeat import keep_pulse, say_stopped
from headgate.service.http_process import FaceConfig, FaceProcess, listen, note_limits
from headgate.service.inviting import Inviting
from headgate.service.jobs import UNNAMED, Jobs
from headgate.service.joining import Joiner
from headgate.service.keeper import KeeperMachine, store_books
from headgate.service.ledger_lines import Lines
from headgate.service.live_tuner import LiveTuner
from headgate.service.machine import MachineWatch
from headgate.service.observer import Observer
from headgate.service.outboxes import make_outboxes
from headgate.service.pages import Page
from headgate.service.processes import JobProcess
from headgate.service.publish_watch import PublishWatch
from headgate.service.purging import PurgerMachine
from headgate.service.relay_processes import RelayPart, RelayProcess
from headgate.service.relays import Relays
from headgate.service.replanning import Replanner
from headgate.service.roles import Roles, hosts_of
from headgate.service.settings import Settings
from headgate.service.startup import apply_file, begin_run, fit, rebuild
from headgate.service.status import read_status
from headgate.service.users import People
from headgate.service.witness import Witness
from headgate.wire.logs import Log, Logs
from headgate.wire.snapshot import Snapshot
from headgate.wire.sums import Matched

_READY_POLL_S: Final = 0.2


ConfigureJob = Callable[["Runtime", int], JobConfig]
"""Gives the job's configuration before each start, by the number of starts before it."""


class Runtime:
    """A running deployment. `open_runtime` makes one; `failed` is set when a part of it has ended by an error."""

    def __init__(
        self,
        settings: Settings,
        fabric: Fabric,
        catalog: Catalog,
        server: EmbeddedServer | None,
        limits: RequestLimits | None = None,
    ) -> None:
        self.settings = settings
        self.fabric = fabric
        self.catalog = catalog
        self.server = server
        self.wide = fabric.share(WideFabric)
        """The same connection, which also reads logs of sites that have servers of their own."""
        self.wide.quarantine = fabric.quarantine
        self.tables = Tables(fabric)
        self.clerk = Clerk(catalog)
        self.control = Control(fabric, self.clerk, self.status, limits)
        self.control.known = self.tables.keep
        reserve_bytes = settings.disk_reserve_bytes
        self.machine = MachineWatch(fabric, settings.state_dir, server, reserve_bytes, self._pause, self._resume)
        self.audit = Audit(settings.state_dir)
        self.people = self.control.people = People(server, fabric.logs, self.audit)
        devices = DeviceDesk(server, fabric.logs, self.audit)
        self.control.more |= devices.verbs
        self.publishers: PublishWatch | None = None
        if server is not None and self.control.limits.publish_bytes_per_s is not None:
            rate = self.control.limits.publish_bytes_per_s
            self.publishers = PublishWatch(server, fabric.logs, rate, lambda: self.people.registry)
            self.people.out = devices.out = self.publishers.out
        self.inviting: Inviting | None = None
        if server is not None:
            self.inviting = Inviting(fabric, server, self.people, lambda: self.control.contexts.snapshot.deployment)
            self.control.more |= self.inviting.verbs
        directory = directory_of(self.url)
        self.roles = Roles(directory, fabric) if directory is not None and has_keys(directory) else None
        self.control.roles = self.people.roles = self.roles
        self.people.deployment = lambda: self.control.contexts.snapshot.deployment
        self.people.settle = self.control.settle_grants
        self.people.tell_hosts = self._tell_hosts
        catalog.recorder = self._record
        self.control.machine = lambda: msgspec.to_builtins(self.machine.report)
        self.relays = Relays(settings, fabric, self.tables, self.roles, self.url)
        self.nodes = self.relays.nodes
        self.relay_processes: list[RelayProcess] = []
        self._booked: list[str] = []
        self._outboxes: set[str] = set()
        self._hosts: list[str] | None = None
        self.keepers: dict[str, KeeperMachine] = {}
        self.control.lines = Lines(fabric, lambda: self.control.contexts.snapshot, self._sums).answer
        self.purger: PurgerMachine | None = None
        self.observer = Observer(fabric, self.tables, settings.window_s)
        self.tuner = LiveTuner(fabric, self.observer, self._in_force, self.control.make, self.status)
        self.control.more |= self.tuner.verbs
        self.replanner: Replanner | None = None
        self.joiner: Joiner | None = None
        self.bypass = Bypass(fabric, catalog, self.control.publish)
        self.jobs = Jobs(settings, self._configure)
        self.collectors = Collectors(fabric)
        self.face: FaceProcess | None = None
        self.configure_job: ConfigureJob | None = None
        self.witness = Witness(fabric, catalog)
        self.told: list[str] = []
        """What a start did about state that did not fit together, in sentences."""
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def url(self) -> str:
        """The address of NATS. It may hold a password: mask it where it is shown."""
        return self.settings.nats or (self.server.url if self.server else "")

    @property
    def listens_at(self) -> str:
        """The address of NATS for people: of an embedded server, its place on the network."""
        return self.settings.nats or (self.server.listens_at if self.server else "")

    async def start(self, deployment: Deployment | None) -> None:
        """Bring the catalog up to the file, publish it, and start relays, books and the Spark job."""
        logs = self.fabric.logs
        self.told += await fit(self.fabric, self.catalog, self.settings, self.server)
        self.wide.marks = self.fabric.marks
        for log in (logs.state, logs.tables):
            await self.fabric.ensure(log)
        missing = await missing_records(self.fabric, self.audit)
        if missing is not None:
            self.told.append(missing)
        await self.control.contexts.recover()
        fixed = self.control.extender.fixed = deployment is not None and deployment.plan is not None
        if deployment is not None:
            await apply_file(self.fabric, self.clerk, deployment)
        await begin_run(self.fabric, self.catalog, self.settings.checkpoints)
        await self.witness.look()
        await in_daemon(warm)
        await self.clerk.run(self.control.granting.settle_all)
        snapshot = await self.control.publish()
        for miss in missed_constraints(snapshot):
            print(f"headgate: {miss}", file=sys.stderr, flush=True)
        self.catalog.guard = self._guard
        await self.control.serve()
        dealers = GroupDealers(self.wide, self._in_force, self._plain_users)
        self._spawn(dealers.run(), "groups")
        if self.server is not None:
            control = self.control
            gate = Gate(
                self.wide,
                self.tables,
                self.people,
                lambda: control.contexts.snapshot,
                control.take_from,
                control.limits,
            )
            gate.deal = dealers.answer
            self._spawn(gate.run(), "gate")
            self._spawn(self.people.run(), "users")
        if self.publishers is not None:
            self._spawn(self.publishers.run(), "what users send")
        if self.inviting is not None:
            self._spawn(self.inviting.run(), "hosts that join")
        self._spawn(self.control.suspender.run(), "filters that take too long")
        self._spawn(self.control.regrouper.run(), "readers that are held up by others")
        self._spawn(keep_anchor(self.fabric, self.audit), "audit")
        self._spawn(self.control.run(), "revisions")
        if self.roles is not None:
            self._spawn(self.roles.run(), "roles")
        await self._follow(snapshot)
        self.control.followers.append(self._follow)
        self._spawn(keep_quarantine(self.fabric, "service"), "quarantine")
        self._spawn(keep_vitals(self.fabric, "service"), "vitals")
        self._run(HeadMachine(logs, **self._own), "head")
        self._spawn(keep_pulse(self.fabric), "pulse")
        self._spawn(self.observer.run(), "observer")
        replanner = self.replanner = self._replanner(snapshot, fixed=fixed)
        self.control.figures = lambda: replanner.figures
        self.control.proposals.approved = replanner.changed
        self._spawn(replanner.run(), "planner")
        self._spawn(self.bypass.run(), "silent relays")
        self._spawn(self.tuner.run(), "tuner")
        self.purger = PurgerMachine(self.control.room, self.settings.tables, logs, **self._own)
        self._run(self.purger, "tables")
        self._spawn(self.witness.run(), "witness")
        self._spawn(Following(self.fabric, self.tables, self.control.set_contexts).run(), "contexts")
        if self.settings.job:
            await self.jobs.follow(self._in_force().deployment, self._spawn)
            self.control.followers.append(self._follow_jobs)
        self._spawn(self.machine.run(), "machine")
        rules = deployment.alerts if deployment is not None else AlertRules()
        watch = AlertWatch(
            self.wide,
            rules,
            lambda: self.control.contexts.snapshot,
            lambda: self.status(Page(limit=1)),
            self.settings.alert_every_s,
        )
        self._spawn(watch.run(), "alerts")
        if self.settings.http:
            self._open_face()

    async def _follow(self, snapshot: Snapshot) -> None:
        """Run what is new in a revision: relays of sites, books and inputs of streams; say which sites are hosts.

        A site or a stream that is gone is left running until the next start: rows on their way may still need it.
        """
        for name, stream in snapshot.deployment.streams.items():
            if name not in self._booked:
                if stream.source.has_input:
                    await self.fabric.ensure(self.fabric.logs.input(name))
                self._booked.append(name)
                keeper = self.keepers[name] = KeeperMachine(name, self.fabric.logs, **self._own)
                self._run(keeper, f"ledger of {name}")
                self.observer.add(name)
        await make_outboxes(self.fabric, snapshot, self._outboxes)
        await self.collectors.follow(snapshot.deployment)
        hosts = sorted(hosts_of(snapshot))
        if hosts != self._hosts:
            self._hosts = hosts
            await self._tell_hosts()
        if self.settings.relays and not self.settings.relay_processes:
            await self.relays.follow(snapshot.deployment, self._spawn)
        elif self.settings.relays and not self.relay_processes:
            self._spread_relays(self.settings.relay_processes)
        unknown = any(site.upload_bytes_per_s is None for site in snapshot.deployment.sites.values())
        if self.joiner is None and unknown and not self.control.extender.fixed:
            self.joiner = Joiner(self.fabric, self.catalog, self.observer, self.control.publish, self.settings.settle_s)
            self._spawn(self.joiner.run(), "joins")

    async def _tell_hosts(self) -> None:
        """Say which sites have servers of their own, and whose host was put out."""
        told = HostList(sites=self._hosts or [], out=dict(self.people.registry.out))
        await self.fabric.publish(self.fabric.logs.hosts, told.encode())

    def _spread_relays(self, parts: int) -> None:
        """Run the relays in processes beside this one."""
        settings = self.settings
        for number in range(parts):
            part = RelayPart(
                self.url,
                settings.namespace,
                str(settings.state_dir.absolute()),
                number,
                parts,
                dict(settings.nats_options),
                settings.limits,
                settings.log_level,
                settings.log_format,
            )
            process = RelayProcess(part)
            self.relay_processes.append(process)
            self._spawn(process.run(), part.name)

    def _open_face(self) -> None:
        """Serve the HTTP API in a process beside this one."""
        settings = self.settings
        make_token(settings.state_dir)
        listening = listen(settings.http_address)
        config = FaceConfig(
            listening.fileno(),
            self.url,
            settings.namespace,
            str(settings.state_dir.absolute()),
            dict(settings.nats_options),
            settings.log_level,
            settings.log_format,
            settings.http_tls,
            settings.listening is not None and settings.listening.mqtt is not None,
            limits=self.control.limits,
            tls_ca=settings.http_tls_ca,
        )
        note_limits(settings.state_dir, config.limits)
        self.face = FaceProcess(listening, config)
        write_whole(settings.state_dir / "http" / "address", self.face.address)
        self._spawn(self.face.run(), "HTTP API")

    def _replanner(self, snapshot: Snapshot, *, fixed: bool) -> Replanner:
        rules = self.settings.replan
        every, move_gain = (snapshot.deployment.options.get(f"replan_{name}") for name in ("every", "move_gain"))
        if every is not None:
            rules = replace(rules, every_s=max(parse_duration(str(every)), 1.0))
        if move_gain is not None:
            rules = replace(rules, effort=replace(rules.effort, move_gain=float(move_gain)))
        return Replanner(
            self.fabric,
            self.catalog,
            self.observer,
            self.control.publish,
            rules,
            fixed=fixed,
            held=self._plan_is_others,
            proposals=self.control.proposals,
        )

    def _in_force(self) -> Snapshot:
        return self.control.contexts.snapshot

    def _plain_users(self) -> set[str]:
        """The users who are no operators."""
        return {user.name for user in self.people.registry.users.values() if not user.operator}

    def _plan_is_others(self) -> bool:
        """Whether the central planner has to leave the plan alone: the tuner owns it, or a site joins or is away."""
        return self._in_force().deployment.tuned or self.bypass.busy or (self.joiner is not None and self.joiner.busy)

    async def _pause(self) -> None:
        """Take nothing more in: stop the jobs, and let the logs of what clients publish hold what they hold."""
        await self.jobs.pause()
        for log in self._inputs():
            info = await self.fabric.info(log)
            await self.fabric.ensure(replace(log, max_bytes=max(0 if info is None else info.state.bytes, 1)))

    async def _resume(self) -> None:
        """Take rows in again."""
        for log in self._inputs():
            await self.fabric.ensure(log)
        self.jobs.resume()

    def _inputs(self) -> list[Log]:
        streams = self.control.contexts.snapshot.deployment.streams.values()
        return [self.fabric.logs.input(stream.name) for stream in streams if stream.source.has_input]

    def _record(self, what: str, edit: Edit) -> None:
        """Tell the audit of a change of the catalog, before it is made."""
        changed = edit.difference()
        if changed:
            self.audit.record_catalog(edit.author or HOME, what, edit.revision, changed)

    def _guard(self) -> None:
        """Refuse a change of the catalog for which there is no room."""
        self.machine.check()
        self.control.room.check()

    @property
    def job(self) -> JobProcess | None:
        """The Spark job without a name, else the first one; None where none runs here."""
        found = self.jobs.processes
        return found.get(UNNAMED) or next(iter(found.values()), None)

    async def _follow_jobs(self, snapshot: Snapshot) -> None:
        """Start and end Spark jobs as a revision asks for, beside what else follows: ending one takes its time."""
        if self.jobs.differs(snapshot.deployment):
            self._spawn(self.jobs.follow(snapshot.deployment, self._spawn), "change of jobs")

    def _configure(self, name: str, restarts: int) -> JobConfig:
        if self.configure_job is not None and name == UNNAMED:
            return self.configure_job(self, restarts)
        return self.job_config(name)

    def job_config(self, name: str = UNNAMED) -> JobConfig:
        """What a Spark job is started with, but for what is its own in the deployment."""
        settings = self.settings
        options = dict(settings.nats_options)
        if self.roles is not None:
            options["user_credentials"] = str(self.roles.job_file(name))
        return JobConfig(
            url=self.url,
            namespace=settings.namespace,
            state_dir=str(settings.state_dir.absolute()),
            master=settings.master,
            archive=None if settings.job_archive is None else str(settings.job_archive.absolute()),
            trigger_s=settings.trigger_s,
            partitions=settings.partitions,
            new_lineage=settings.new_lineage or settings.accept_loss,
            spark_options=dict(settings.spark_options),
            nats_options=options,
            log_level=settings.log_level,
            log_format=settings.log_format,
        )

    @property
    def _own(self) -> dict[str, Any]:
        """What machines of this process share."""
        return {"max_payload": self.fabric.max_payload, "quarantine": self.fabric.quarantine}

    def _run(self, machine: kernel.Machine, what: str) -> None:
        """Run a machine of the protocol for as long as the deployment runs."""
        task = self._spawn(run_machine(self.wide, machine, self.tables.snapshot), what)
        task.add_done_callback(lambda _: machine.close())  # also where it was cancelled before it began

    def _spawn(self, work: Any, what: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=what)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A part that ends by an error takes the deployment down with a message; restarting it is the user's choice."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self.failure.done():
            SERVICE.error("the %s has ended too: %s", task.get_name(), error)
            return
        SERVICE.debug("the %s has ended", task.get_name(), exc_info=error)
        self.failure.set_exception(error)

    async def wait_ready(self, tell: Callable[[str], None] | None = None, timeout_s: float = 180.0) -> None:
        """Wait until every Spark job takes rows. `tell` hears what is going on."""
        said: dict[str, str] = {}
        async with asyncio.timeout(timeout_s):
            while not self.failure.done():
                unready = await self.jobs.unready(self.fabric)
                for name, state in {**dict.fromkeys(said, "ready"), **unready}.items():
                    if tell and state and said.get(name) != state:
                        said[name] = state
                        tell(f"{name}: {state}" if name else state)
                if self.jobs.processes and not unready:
                    return
                await asyncio.sleep(_READY_POLL_S)
        await self.failure

    async def status(self, page: Page | None = None) -> dict[str, Any]:
        """Everything that can be said about the deployment now, with all subscriptions or those of a page."""
        return await read_status(self.fabric, self.tables, self.settings.state_dir, page)

    def _sums(self) -> dict[str, Matched]:
        """The root's side of every stream's books, as it stands."""
        return {stream: machine.keeper.reading.matched for stream, machine in self.keepers.items()}

    async def stop_job(self) -> None:
        """Stop taking rows in; what is committed goes on to the subscribers."""
        await self.jobs.stop()

    async def stop(self) -> None:
        """Stop everything that `start` started."""
        if self.face is not None:
            await self.face.stop()
        await asyncio.gather(*(process.stop() for process in self.relay_processes))
        await self.control.close()
        await self.collectors.close()
        await self.stop_job()
        if not self.failure.done():
            self.failure.cancel()
        await cancel_all(self._tasks)
        for stream in self._booked:
            with noted(SERVICE, "the books were not stored at the stop", HeadgateError, level=logging.WARNING):
                await store_books(self.fabric, self.tables, stream)
        with noted(SERVICE, "contexts were not folded at the stop", HeadgateError, level=logging.WARNING):
            await self.control.contexts.fold()
        await self.relays.close()
        if self.roles is not None:
            await self.roles.close()
        await self.clerk.close()
        if self._tasks:  # a start that was refused changes nothing
            with noted(SERVICE, "the audit was not anchored at the stop", HeadgateError, level=logging.WARNING):
                await store_anchor(self.fabric, self.audit, None)
            await say_stopped(self.fabric)
        await self.witness.close()


@asynccontextmanager
async def open_runtime(
    settings: Settings, deployment: Deployment | None, configure_job: ConfigureJob | None = None
) -> AsyncIterator[Runtime]:
    """Start a deployment and stop it at the end of the block, whatever happens in between."""
    async with AsyncExitStack() as stack:
        stack.enter_context(exclusive(settings.state_dir))
        server = None
        if settings.nats is None:
            server = EmbeddedServer(settings.state_dir, listening=settings.listening)
            stack.callback(server.stop)
            await asyncio.to_thread(server.start)
            place = settings.listening
            if place is not None and place.mqtt_reached is not None:
                tls = place.certificate is not None
                await prepare(server.url, server.directory, place.mqtt_reached, tls=tls)
        url = settings.nats or (server.url if server else "")
        logs = Logs(
            settings.namespace, inbox_messages=settings.inbox_messages, tables_bytes=settings.tables.limit_bytes
        )
        fabric = await stack.enter_async_context(await Fabric.connect(url, logs, **settings.nats_options))
        told = await rebuild(fabric, settings.catalog_place) if settings.rebuild_catalog else []
        catalog = stack.enter_context(Catalog.open(settings.catalog_place))
        runtime = Runtime(settings, fabric, catalog, server, None if deployment is None else deployment.limits)
        runtime.told += told
        runtime.configure_job = configure_job
        stack.push_async_callback(runtime.stop)
        await runtime.start(deployment)
        yield runtime
