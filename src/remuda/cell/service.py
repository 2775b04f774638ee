"""A cell in one process: opens the data folder, puts the parts together, serves until told to stop.

Decided here: the order of starting (nothing is touched before the folder is ours and the port is free) and of stopping
(held polls first, so that nobody waits for them). `remuda.cli` runs it; what a request does is in `remuda.cell.http`.

Invariant: `ready` is called when requests are served, not before.
"""

import asyncio
import contextlib
import errno
import gc
import itertools
import logging
import secrets
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

from msgspec.structs import replace
from uvicorn.config import Config
from uvicorn.server import Server

from remuda.cell.blobs.port import Blobs
from remuda.cell.blobs.upload_parsers import Parsers
from remuda.cell.dispatch.dispatcher import Dispatch
from remuda.cell.errors import CellError
from remuda.cell.events import Events
from remuda.cell.git.push_files import PushFiles
from remuda.cell.git.repositories import GitRepos
from remuda.cell.http.edge.app import CellApp
from remuda.cell.http.edge.app import api_document as api_document
from remuda.cell.http.edge.connections import BACKLOG, Connection, connections_within
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.gitlab.runner_tokens import ensure_registration_token
from remuda.cell.http.runner.managers import Managers
from remuda.cell.metrics import CellMetrics
from remuda.cell.operations.blob_ownership import claim_blobs, claim_folder, open_blobs
from remuda.cell.operations.data_folder import DataFolder, open_folder
from remuda.cell.operations.downtime import DowntimeFile
from remuda.cell.operations.upkeep import Upkeep
from remuda.cell.pipelines.creation import Pipelines
from remuda.cell.pipelines.releases import Releases
from remuda.cell.pipelines.schedules import Schedules
from remuda.cell.pipelines.trigger_jobs import TriggerJobs
from remuda.cell.projects.projects import Projects
from remuda.cell.projects.refs import find_ref, find_ref_or_default
from remuda.cell.projects.registry import Registry
from remuda.cell.secrets.key_ring import KeyRing
from remuda.cell.secrets.sealing import Seals
from remuda.cell.settings import OPAQUE, CellSettings
from remuda.cell.shells.files import ShellFiles
from remuda.cell.shells.shells import Shells
from remuda.cell.store.open import open_store
from remuda.cell.store.ports import Store
from remuda.cell.traces.archive import ArchivedTraces
from remuda.cell.traces.files import FileTraces
from remuda.cell.values import ORGANIZATION_ID, USER_ID, UserToken
from remuda.cell.values.audit_events import AuditEvent
from remuda.lib.clock import Clock, SystemClock
from remuda.lib.descriptors import raise_limit
from remuda.lib.waiting import happens
from remuda.telemetry.logs import logger
from remuda.wire.routable_token import encode, token_hash

KEEP_ALIVE_SECONDS = 120
"""Longer than runners keep an idle connection (90 s), so that the server is not the one to cut it."""
REREAD_SECONDS = 30.0
"""How often a process looks whether there is a new encryption key."""
_LOOK_SECONDS = 0.01
"""How often a stopping server looks whether its last requests are done."""
_USER_PREFIX = "glpat-"

_log = logger("cell")


def new_admin_token(cell_id: int) -> str:
    """A token for the administrator that says which cell it is of."""
    routing = {"c": cell_id, "o": ORGANIZATION_ID, "u": USER_ID}
    return encode(prefix=_USER_PREFIX, routing=routing, random=secrets.token_bytes(16))


class CellService:
    """One cell, from start to stop."""

    def __init__(self, settings: CellSettings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.admin_token_generated: str | None = None
        """Set by the first start of a data folder for which no token was given; it is kept nowhere else."""
        self._clock = clock or SystemClock()
        self._seals: Seals

    async def run(self, stop: asyncio.Event, *, ready: Callable[[str], None] = lambda url: None) -> None:
        """Serve until `stop` is set. DataFolderError or CellError when that cannot begin."""
        with (
            open_folder(self.settings.data, cell_id=self.settings.cell_id, shared=self.settings.is_shared) as folder,
            contextlib.closing(_bind(self.settings.host, self.settings.port)) as listener,
        ):
            self.settings = self.settings.with_port(listener.getsockname()[1])
            store, self._seals = await open_store(self.settings)
            try:
                await self._serve(store, folder, listener, stop, ready)
            finally:
                await store.close()

    async def _serve(
        self,
        store: Store,
        folder: DataFolder,
        listener: socket.socket,
        stop: asyncio.Event,
        ready: Callable[[str], None],
    ) -> None:
        if self.settings.is_shared:
            await claim_folder(store, folder.path)
        await self._ensure_tokens(store)
        edge = await self._compose(store, folder)
        await edge.projects.namespaces.adopt_projects()
        folder.share()
        await edge.dispatch.sync.load()
        await store.warm_up()
        # What is there now stays: later collections need not look at it again, and are over sooner.
        gc.collect()
        gc.freeze()
        app = CellApp(edge)
        connections = replace(
            connections_within(raise_limit()),
            at_once=app.take_at_once,
            reader_seconds=self.settings.reader_silent_seconds,
        )
        server = _Server(
            Config(
                app,
                http=cast("type[asyncio.Protocol]", partial(Connection, shared=connections)),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                backlog=connections.at_one_go,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=self.settings.stop_seconds,
            ),
            lambda: self._announce(ready),
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(edge.dispatch.timeouts.watch(stop), name="cell sweep")
            group.create_task(edge.dispatch.handout.refresh_caches(stop), name="cell cache refresh")
            group.create_task(self._bridges(edge).watch(stop), name="cell trigger jobs")
            group.create_task(edge.projects.watch(stop), name="cell repositories")
            group.create_task(edge.schedules.watch(stop), name="cell schedules")
            group.create_task(self._upkeep(edge).watch(stop), name="cell upkeep")
            group.create_task(self._reread_keys(stop), name="cell encryption keys")
            group.create_task(edge.events.watch(stop), name="cell events")
            group.create_task(edge.shells.watch(stop), name="cell shells")
            group.create_task(edge.dispatch.timeouts.presence.watch(stop), name="cell presence")
            follower = group.create_task(edge.dispatch.sync.follow(), name="cell other processes")
            group.create_task(server.serve(sockets=[listener]), name="cell http")
            await stop.wait()
            follower.cancel()
            edge.dispatch.memory.held_polls.stop()
            edge.events.stop()
            edge.shells.stop()
            server.leave()
        edge.parsers.close()
        await edge.blobs.close()
        _log.info("the cell has stopped", cell=self.settings.cell_id)

    async def _reread_keys(self, stop: asyncio.Event) -> None:
        """Another process may have put a new key in front."""
        while not await happens(stop, within_seconds=REREAD_SECONDS):
            try:
                self._seals.refresh()
            except CellError as error:
                _log.warning("the encryption keys cannot be read; the cell goes on with those it has", error=str(error))

    def _announce(self, ready: Callable[[str], None]) -> None:
        settings = self.settings
        _log.info(
            "the cell serves",
            cell=settings.cell_id,
            url=settings.url,
            listen=f"{settings.host}:{settings.port}",
            data=str(settings.data),
        )
        ready(settings.url)

    async def _compose(self, store: Store, folder: DataFolder) -> Edge:
        settings, clock = self.settings, self._clock
        repos = GitRepos(
            folder.repos,
            folder.hooks,
            borrowed_objects=settings.borrowed_objects,
            links=settings.links,
            push_limit_bytes=settings.push_limit_bytes,
        )
        repos.prepare()
        pushes = PushFiles(folder.repos)
        blobs = await self._blobs(store, folder)
        traces = ArchivedTraces(FileTraces(folder.traces), blobs)
        keys = KeyRing(
            store, clock, cell_id=settings.cell_id, issuer=settings.url, opaque=settings.job_tokens == OPAQUE
        )
        await keys.load()
        presence = DowntimeFile(clock, folder.presence)
        presence.begin()
        dispatch = Dispatch(store, traces, clock, settings, keys, presence)
        pipelines = Pipelines(store=store, repos=repos, changes=dispatch.changes, clock=clock, settings=settings)
        projects = Projects(
            store=store,
            repos=repos,
            pushes=pushes,
            pipelines=pipelines,
            clock=clock,
            pipelines_per_push=settings.pipelines_per_push,
        )
        return Edge(
            settings=settings,
            store=store,
            traces=traces,
            blobs=blobs,
            dispatch=dispatch,
            projects=projects,
            pipelines=pipelines,
            releases=Releases(store=store, blobs=blobs, projects=projects, clock=clock, public_url=settings.url),
            schedules=Schedules(store=store, repos=repos, starter=pipelines, clock=clock),
            managers=Managers(store, clock),
            metrics=CellMetrics(),
            events=Events(store, dispatch.memory.changed_jobs, clock),
            shells=Shells(ShellFiles(folder.looking), clock, settings, dispatch.memory.stops),
            parsers=Parsers(memory_bytes=settings.parse_memory_bytes, folder=folder.path),
            clock=clock,
            registry=await Registry.open(store, clock, settings) if settings.registry else None,
        )

    async def _blobs(self, store: Store, folder: DataFolder) -> Blobs:
        where = self.settings.blobs
        blobs = await open_blobs(self.settings, folder.blobs)
        if where:
            try:
                await claim_blobs(store, blobs, where)
            except CellError:
                await blobs.close()
                raise
        return blobs

    def _upkeep(self, edge: Edge) -> Upkeep:
        return Upkeep(
            store=edge.store,
            traces=edge.traces,
            blobs=edge.blobs,
            find_ref=partial(find_ref, edge.projects.repos),
            clock=self._clock,
            settings=self.settings,
        )

    def _bridges(self, edge: Edge) -> TriggerJobs:
        return TriggerJobs(
            store=edge.store,
            blobs=edge.blobs,
            changes=edge.dispatch.changes,
            queue=edge.dispatch.memory.trigger_jobs,
            starter=edge.pipelines,
            find_ref=partial(find_ref_or_default, edge.projects.repos),
            clock=self._clock,
            public_url=self.settings.url,
        )

    async def _ensure_tokens(self, store: Store) -> None:
        """The administrator's token and the registration token: those given, else made by the first start."""
        given = self.settings.admin_token
        if given is None and not await store.people.list_user_tokens():
            given = self.admin_token_generated = new_admin_token(self.settings.cell_id)
        if given is not None and await store.people.find_user_token(token_hash(given)) is None:
            token = UserToken(token_hash=token_hash(given), name="administrator", created_at=self._clock.now())
            await store.people.add_user_token(token)
            await store.settings.add_audit_event(
                AuditEvent(
                    created_at=self._clock.now(),
                    action="personal_access_token_created",
                    author_name="start of the cell",
                    entity_type="User",
                    entity_id=USER_ID,
                    target="administrator",
                )
            )
        await ensure_registration_token(store, self.settings)


class _Server(Server):
    """uvicorn inside a program that handles signals itself."""

    def __init__(self, config: Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._leaving = asyncio.Event()
        complaints = logging.getLogger("uvicorn.error")
        complaints.handlers = [_Forward()]
        complaints.propagate = False
        complaints.setLevel(logging.WARNING)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # asyncio has one number for two things: how many may wait in the kernel, and how many it accepts in a row.
        for listener in sockets or ():
            listener.listen(BACKLOG)
        self._on_started()

    def leave(self) -> None:
        """Stop serving."""
        self.should_exit = True
        self._leaving.set()

    async def main_loop(self) -> None:
        """As uvicorn's, which would notice only with the next tick that it shall stop."""
        for counter in itertools.count():
            if await self.on_tick(counter):
                return
            await happens(self._leaving, within_seconds=0.1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, which pauses for a tenth of a second, whether or not there is anybody to wait for."""
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(_LOOK_SECONDS)
                for server in self.servers:
                    await server.wait_closed()
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel("the cell stops")


class _Forward(logging.Handler):
    """What uvicorn complains of goes where everything else is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, asyncio.CancelledError):
            _log.warning("a request was cut off by the stop")
        else:
            _log.warning("http server", message=record.getMessage().strip(), error=repr(error) if error else None)


def _bind(host: str, port: int) -> socket.socket:
    """A socket on the address; CellError names what is in the way."""
    where = f"{host or '*'}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise CellError(f"cannot listen on {where}: {error.strerror}; give an address of this machine") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        advice = {
            errno.EADDRINUSE: "another process listens there; stop it or give another --listen HOST:PORT",
            errno.EACCES: "ports below 1024 need privileges; give another --listen HOST:PORT",
            errno.EADDRNOTAVAIL: "this machine has no such address; give one that it has",
        }.get(error.errno or 0, error.strerror or str(error))
        raise CellError(f"cannot listen on {where}: {advice}") from None
    return listener
