"""`GET /api/remuda/v1/events`: changes of jobs, pipelines and runners, as server-sent events.

A client gets only events about what its user may read; the user's rights are loaded again every few seconds, so a lost
right takes effect soon. All clients read the same buffer, so a slow client needs no memory of its own. If the next
event of a client is not in the buffer any more, because the client is too slow, or has reconnected too late or to
another process, it gets a `reset` event and is disconnected."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from remuda.cell.core.event_buffer import Event, EventFilter, EventKind
from remuda.cell.errors import StoreError
from remuda.cell.events import MOST_WATCHERS, Watcher
from remuda.cell.http.edge.access import USER
from remuda.cell.http.edge.admission import Caller, check_level, person_in, runner_level
from remuda.cell.http.edge.bodies import HangUp, is_number
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import ApiError, ClientGoneError, bad_parameter, not_found, unavailable
from remuda.cell.http.edge.routes import Routes
from remuda.cell.values import Project, Runner
from remuda.cell.values.people import Level
from remuda.lib.waiting import wait_for_event
from remuda.model.job import JobId, PipelineId, ProjectId

HEARTBEAT_SECONDS = 15.0
RIGHTS_SECONDS = 5.0
"""How long the rights of a client are cached."""
SEND_SECONDS = 30.0
"""A client that reads nothing for this long is disconnected."""
RETRY_MILLISECONDS = 1000
_AT_ONCE = 200


class _Sight:
    """Decides which events one client gets: those that match its filter and that its user may see."""

    def __init__(self, edge: Edge, request: Request, caller: Caller, event_filter: EventFilter) -> None:
        self.event_filter = event_filter
        self._edge = edge
        self._request = request
        self._caller = caller
        self._loaded_at = edge.clock.monotonic()
        self._projects: dict[ProjectId, bool] = {}

    async def renew(self) -> None:
        """Load the user's rights again after RIGHTS_SECONDS. Raises ApiError if the token is not valid any more."""
        now = self._edge.clock.monotonic()
        if now - self._loaded_at >= RIGHTS_SECONDS:
            self._caller = await person_in(self._edge, self._request)
            self._projects.clear()
            self._loaded_at = now

    async def sees(self, event: Event) -> bool:
        if not self.event_filter.covers(event):
            return False
        if event.runner is not None:
            return await self._sees_runner(event.runner)
        if event.project_id is None:
            return False
        if event.project_id not in self._projects:
            project = await self._edge.store.projects.load_project(event.project_id)
            level = None if project is None or project.removed_at is not None else self._caller.level_in(project)
            self._projects[event.project_id] = (level or 0) >= Level.REPORTER
        return self._projects[event.project_id]

    async def _sees_runner(self, runner: Runner) -> bool:
        if not self.event_filter.runners:
            return False
        try:
            await runner_level(self._edge, self._caller, runner)
        except ApiError:
            return False
        return True


class _EventStream(Response):
    """Server-sent events until the client disconnects, the cell stops, events are lost or the token is invalid."""

    def __init__(self, edge: Edge, sight: _Sight, last_event_id: str) -> None:
        self.status_code = 200
        self.media_type = "text/event-stream"
        self.background = None
        # Proxies buffer answers unless told not to.
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._edge = edge
        self._events = edge.events
        self._sight = sight
        self._last_event_id = last_event_id
        self._gone = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._events.subscribe(runners=self._sight.event_filter.runners) as watcher:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with asyncio.TaskGroup() as group:
                hang_up = group.create_task(self._wait_hang_up(receive, watcher), name="watcher of events")
                try:
                    async for piece in self._pieces(watcher):
                        async with asyncio.timeout(SEND_SECONDS):
                            await send({"type": "http.response.body", "body": piece, "more_body": True})
                except TimeoutError:
                    raise ClientGoneError from None
                finally:
                    hang_up.cancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _wait_hang_up(self, receive: Receive, watcher: Watcher) -> None:
        await HangUp(receive).wait()
        self._gone = True
        watcher.wake.set()

    async def _pieces(self, watcher: Watcher) -> AsyncIterator[bytes]:
        events, buffer = self._events, self._events.buffer
        place = buffer.place(self._last_event_id) if self._last_event_id else buffer.last
        with suppress(ApiError, StoreError):
            await events.ready()
            yield b"retry: %d\n" % RETRY_MILLISECONDS
            if place is not None and buffer.after(place, at_most=1) is not None:
                yield buffer.heartbeat(place)
            while not (self._gone or events.stopped):
                watcher.wake.clear()
                batch = None if place is None else buffer.after(place, at_most=_AT_ONCE)
                if place is None or batch is None:
                    yield buffer.reset("some events are not available any more; read the current state again")
                    return
                await self._sight.renew()
                texts = [
                    buffer.text(place + number, event)
                    for number, event in enumerate(batch, 1)
                    if await self._sight.sees(event)
                ]
                place += len(batch)
                if texts:
                    yield b"".join(texts)
                elif not batch and not await wait_for_event(watcher.wake, within_seconds=HEARTBEAT_SECONDS):
                    yield buffer.heartbeat(place)


routes = Routes()


@routes.get(
    "/api/remuda/v1/events",
    USER,
    query={"kind": str, "project": str, "pipeline": int, "job": int},
    gives=bytes,
    headers=("Last-Event-ID",),
)
async def watch(edge: Edge, request: Request, caller: Caller) -> Response:
    """Send changes of jobs, pipelines and runners as server-sent events."""
    if len(edge.events) >= MOST_WATCHERS:
        raise unavailable(f"this process already has {MOST_WATCHERS} watchers, which is the limit")
    event_filter = await _read_filter(edge, caller, request.query_params)
    sight = _Sight(edge, request, caller, event_filter)
    return _EventStream(edge, sight, request.headers.get("last-event-id", ""))


async def _read_filter(edge: Edge, caller: Caller, query: Mapping[str, str]) -> EventFilter:
    """Read from the query which events the client wants. Raises ApiError 400 if the query is not valid, 404 or 403 if
    the caller may not read the project, pipeline or job in it."""
    names = [name.strip() for name in query.get("kind", "").split(",") if name.strip()]
    unknown = [name for name in names if name not in tuple(EventKind)]
    if unknown:
        raise bad_parameter(
            f"kind does not have a valid value; expected a comma-separated list of {', '.join(EventKind)}"
        )
    kinds = frozenset(map(EventKind, names)) or frozenset(EventKind)
    project_id = pipeline_id = job_id = None
    if text := query.get("project", ""):
        by_number = edge.store.projects.load_project(ProjectId(int(text))) if is_number(text) else None
        project = await (by_number or edge.store.projects.find_project(text))
        _check(caller, project, "Project")
        project_id = project.id if project else None
    if "pipeline" in query:
        pipeline = await edge.store.pipelines.load_pipeline(PipelineId(_number(query, "pipeline")))
        _check(caller, await edge.store.projects.load_project(pipeline.project_id) if pipeline else None, "Pipeline")
        pipeline_id = pipeline.id if pipeline else None
    if "job" in query:
        job = await edge.store.jobs.load_job(JobId(_number(query, "job")))
        _check(caller, await edge.store.projects.load_project(job.project_id) if job else None, "Job")
        job_id = job.id if job else None
    return EventFilter(kinds=kinds, project_id=project_id, pipeline_id=pipeline_id, job_id=job_id)


def _check(caller: Caller, project: Project | None, what: str) -> None:
    if project is None or project.removed_at is not None:
        raise not_found(what)
    check_level(caller.level_in(project), Level.REPORTER, what)


def _number(query: Mapping[str, str], name: str) -> int:
    if not is_number(query[name]):
        raise bad_parameter(f"{name} is invalid")
    return int(query[name])
