"""Runs a cell in one process. The composition root: only this module creates its components and connects them.

The order of a start: lock the data folder, bind the port, open the store, create the components, load the queue, serve.
A stop ends long-polling requests first, so that the HTTP server need not wait for them."""

import asyncio
import contextlib
import gc
import socket
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from remuda.cell.blobs.port import Blobs
from remuda.cell.blobs.upload_parsers import Parsers
from remuda.cell.dispatch.dispatcher import Dispatch
from remuda.cell.errors import CellError
from remuda.cell.events import ChangedJobs, Events
from remuda.cell.git.push_files import PushFiles
from remuda.cell.git.repositories import GitRepos
from remuda.cell.http.edge.app import CellApp
from remuda.cell.http.edge.app import api_document as api_document
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.gitlab.runner_tokens import ensure_registration_token
from remuda.cell.http.runner.managers import Managers
from remuda.cell.metrics import CellMetrics
from remuda.cell.operations.admin_tokens import new_admin_token
from remuda.cell.operations.blob_ownership import claim_blobs, claim_folder, open_blobs
from remuda.cell.operations.data_folder import DataFolder, open_folder
from remuda.cell.operations.downtime import DowntimeFile
from remuda.cell.operations.upkeep import Upkeep
from remuda.cell.operations.usage_recorder import UsageRecorder
from remuda.cell.pipelines.creation import Pipelines
from remuda.cell.pipelines.environments import Environments
from remuda.cell.pipelines.releases import Releases
from remuda.cell.pipelines.schedules import Schedules
from remuda.cell.pipelines.trigger_jobs import TriggerJobs
from remuda.cell.pipelines.webhooks import Webhooks
from remuda.cell.projects.projects import Projects
from remuda.cell.projects.refs import find_ref, find_ref_or_default
from remuda.cell.projects.registry import Registry
from remuda.cell.secrets.key_ring import KeyRing
from remuda.cell.secrets.sealing import Seals
from remuda.cell.server import CellServer, bind
from remuda.cell.settings import OPAQUE, CellSettings
from remuda.cell.shells.files import ShellFiles
from remuda.cell.shells.runner_sessions import RunnerSessions
from remuda.cell.shells.shells import Shells
from remuda.cell.store.open import open_store
from remuda.cell.store.ports import Store
from remuda.cell.tls import ServerCertificate
from remuda.cell.traces.archive import ArchivedTraces
from remuda.cell.traces.files import FileTraces
from remuda.cell.traces.readers import TraceReaders
from remuda.cell.values import USER_ID, UserToken
from remuda.cell.values.audit_events import AuditEvent
from remuda.cell.web.app import page_routes
from remuda.lib.clock import Clock, SystemClock
from remuda.lib.waiting import wait_for_event
from remuda.telemetry.logs import logger
from remuda.wire.routable_token import token_hash

REREAD_SECONDS = 30.0
"""How often a process looks whether there is a new encryption key."""

_log = logger("cell")


class CellService:
    def __init__(
        self, settings: CellSettings, clock: Clock | None = None, *, sources: Mapping[str, str] | None = None
    ) -> None:
        """`sources`: where each setting that was given comes from, by name, for administrators to see."""
        self.settings = settings
        self._sources = dict(sources or {})
        self.admin_token_generated: str | None = None
        """Set by the first start of a data folder if the settings give no token; it is stored nowhere else."""
        self._clock = clock or SystemClock()
        self._seals: Seals
        self._certificate: ServerCertificate | None = None

    async def run(self, stop: asyncio.Event, *, ready: Callable[[str], None] = lambda url: None) -> None:
        """Serve until `stop` is set. `ready` is called with the public URL once requests are served, not before. Raises
        DataFolderError or another CellError if the cell cannot start."""
        if self.settings.tls_certificate is not None:
            self._certificate = ServerCertificate(self.settings, self._clock)
        with (
            open_folder(self.settings.data, cell_id=self.settings.cell_id, shared=self.settings.is_shared) as folder,
            contextlib.closing(bind(self.settings.host, self.settings.port)) as listener,
        ):
            self.settings = self.settings.with_port(listener.getsockname()[1])
            store, self._seals = await open_store(self.settings)
            try:
                edge = await self._load(store, folder)
                await self._serve(edge, listener, stop, ready)
            finally:
                await store.close()

    def reload_certificate(self) -> None:
        """Read certificate and key again, if the cell has them. New connections get the new certificate."""
        if self._certificate is not None:
            self._certificate.reload()
        else:
            _log.info("nothing to reload: the cell has no certificate")

    async def _load(self, store: Store, folder: DataFolder) -> Edge:
        if self.settings.is_shared:
            await claim_folder(store, folder.path)
        await self._ensure_tokens(store)
        edge = await self._compose(store, folder)
        await edge.projects.namespaces.adopt_projects()
        folder.share()
        await edge.dispatch.sync.load()
        await store.warm_up()
        # These objects stay: later garbage collections skip them, and take less time.
        gc.collect()
        gc.freeze()
        return edge

    async def _serve(
        self, edge: Edge, listener: socket.socket, stop: asyncio.Event, ready: Callable[[str], None]
    ) -> None:
        server = CellServer(
            CellApp(edge, page_routes(edge) if self.settings.web.enabled else ()),
            self.settings,
            lambda: self._announce(ready),
            self._certificate,
        )
        async with asyncio.TaskGroup() as group:
            for name, task in self._background_tasks(edge, stop).items():
                group.create_task(task, name=f"cell {name}")
            follower = group.create_task(edge.dispatch.sync.follow(), name="cell other processes")
            group.create_task(server.serve(sockets=[listener]), name="cell http")
            await stop.wait()
            follower.cancel()
            edge.dispatch.memory.held_polls.stop()
            edge.events.stop()
            edge.shells.stop()
            edge.trace_readers.stop()
            server.leave()
        edge.parsers.close()
        await edge.blobs.close()
        _log.info("cell stopped", cell=self.settings.cell_id)

    def _background_tasks(self, edge: Edge, stop: asyncio.Event) -> dict[str, Coroutine[Any, Any, None]]:
        """Return the coroutines that run beside the HTTP server, by name. Each ends when `stop` is set."""
        trigger_jobs = TriggerJobs(
            store=edge.store,
            blobs=edge.blobs,
            changes=edge.dispatch.changes,
            queue=edge.dispatch.memory.trigger_jobs,
            starter=edge.pipelines,
            find_ref=partial(find_ref_or_default, edge.projects.repos),
            clock=self._clock,
            public_url=self.settings.url,
        )
        upkeep = Upkeep(
            store=edge.store,
            traces=edge.traces,
            blobs=edge.blobs,
            find_ref=partial(find_ref, edge.projects.repos),
            clock=self._clock,
            settings=self.settings,
        )
        certificate = {} if self._certificate is None else {"certificate": self._certificate.watch(stop)}
        return certificate | {
            "sweep": edge.dispatch.timeouts.watch(stop),
            "cache refresh": edge.dispatch.handout.refresh_caches(stop),
            "trigger jobs": trigger_jobs.watch(stop),
            "repositories": edge.projects.watch(stop),
            "schedules": edge.schedules.watch(stop),
            "environments": edge.environments.watch(stop),
            "upkeep": upkeep.watch(stop),
            "usage": edge.usage.watch(stop),
            "encryption keys": self._reread_keys(stop),
            "events": edge.events.watch(stop),
            "webhook events": edge.webhooks.watch_events(stop),
            "webhook deliveries": edge.webhooks.watch_deliveries(stop),
            "shells": edge.shells.watch(stop),
            "runner sessions": RunnerSessions(edge.shells).watch(stop),
            "presence": edge.dispatch.timeouts.presence.watch(stop),
        }

    async def _reread_keys(self, stop: asyncio.Event) -> None:
        """Read the encryption keys again periodically: another process or a command may have added one."""
        while not await wait_for_event(stop, within_seconds=REREAD_SECONDS):
            try:
                self._seals.refresh()
            except CellError as error:
                _log.warning("cannot reload the encryption keys; using those in memory", error=str(error))

    def _announce(self, ready: Callable[[str], None]) -> None:
        settings = self.settings
        _log.info(
            "cell started",
            cell=settings.cell_id,
            url=settings.url,
            listen=f"{settings.host}:{settings.port}",
            data=str(settings.data),
        )
        if self._certificate is not None:
            self._certificate.log_warnings()
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
        environments = Environments(store=store, commands=dispatch.user_commands, clock=clock)
        hooked_jobs = ChangedJobs()
        trace_readers = TraceReaders()
        dispatch.memory.changed_jobs.others += [hooked_jobs, trace_readers]
        webhooks = Webhooks(store=store, repos=repos, changed=hooked_jobs, clock=clock, settings=settings)
        projects = Projects(
            store=store,
            webhooks=webhooks,
            repos=repos,
            pushes=pushes,
            pipelines=pipelines,
            clock=clock,
            pipelines_per_push=settings.pipelines_per_push,
            stop_environments=environments.stop_of_branch,
        )
        return Edge(
            settings=settings,
            store=store,
            traces=traces,
            trace_readers=trace_readers,
            blobs=blobs,
            dispatch=dispatch,
            projects=projects,
            pipelines=pipelines,
            webhooks=webhooks,
            releases=Releases(store=store, blobs=blobs, projects=projects, clock=clock, public_url=settings.url),
            schedules=Schedules(store=store, repos=repos, starter=pipelines, clock=clock),
            environments=environments,
            managers=Managers(store, clock),
            metrics=CellMetrics(),
            events=Events(store, dispatch.memory.changed_jobs, clock),
            shells=Shells(ShellFiles(folder.looking), clock, settings, dispatch.memory.stops),
            parsers=Parsers(memory_bytes=settings.parse_memory_bytes, folder=folder.path),
            clock=clock,
            usage=UsageRecorder(store, dispatch.memory, clock),
            setting_sources=self._sources,
            registry=await Registry.open(store, clock, settings) if settings.registry else None,
        )

    async def _blobs(self, store: Store, folder: DataFolder) -> Blobs:
        blobs = await open_blobs(self.settings, folder.blobs)
        if self.settings.blobs:
            try:
                await claim_blobs(store, blobs, self.settings.blobs)
            except CellError:
                await blobs.close()
                raise
        return blobs

    async def _ensure_tokens(self, store: Store) -> None:
        """Ensure an administrator's token (of the settings, or new if no user has one) and a registration token. A cell
        without tokens is new, so its first user is created now."""
        secret = self.settings.admin_token
        if secret is None and not await store.people.list_user_tokens():
            secret = self.admin_token_generated = new_admin_token(self.settings.cell_id)
        if secret is not None and await store.people.find_user_token(token_hash(secret)) is None:
            if not await store.people.list_user_tokens() and (user := await store.people.load_user(USER_ID)):
                await store.people.put_user(replace(user, created_at=self._clock.now()))
            token = UserToken(token_hash=token_hash(secret), name="administrator", created_at=self._clock.now())
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
