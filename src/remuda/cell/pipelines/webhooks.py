"""Webhooks: notices events of projects that have hooks, stores a delivery for each hook that wants them, and sends
deliveries that are due.

Every event has an id that depends on the event alone, and the store keeps one delivery for each. So events can be
noticed twice: by two processes, or again after a restart, which looks at pipelines of the last `LOOK_BACK_SECONDS`. A
push is stored as a delivery before it counts as processed. An event is delivered at least once, perhaps twice.

A pipeline or job whose state changes twice within a moment may have one event for both changes."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from remuda.cell.core.access.protected_refs import HEADS, TAGS
from remuda.cell.core.pipelines.webhook_delivery import (
    address_of,
    after_try,
    body_of,
    headers_of,
    hide_variables,
    hook_after,
)
from remuda.cell.core.pipelines.webhook_payloads import (
    JOB,
    MAX_COMMITS,
    PIPELINE,
    PUSH,
    TAG_PUSH,
    event_id,
    is_sent_state,
    job_body,
    pipeline_body,
    push_body,
    wants,
)
from remuda.cell.errors import CellError
from remuda.cell.events import ChangedJobs
from remuda.cell.git.port import Commit, Repositories
from remuda.cell.pipelines.webhook_sender import DEADLINE_SECONDS, send_request
from remuda.cell.projects.namespaces import list_all_projects
from remuda.cell.settings import CellSettings
from remuda.cell.store.ports import Store
from remuda.cell.values import Job, Page, Pipeline, PipelineFilter, Project
from remuda.cell.values.hooks import Hook, HookDelivery
from remuda.cell.values.people import ProjectFilter
from remuda.lib.clock import Clock
from remuda.lib.killpoints import reach
from remuda.lib.waiting import wait_for_any_event
from remuda.model.job import JobId, ProjectId
from remuda.pipeline.facts import NO_SHA
from remuda.telemetry.logs import logger

LOOK_BACK_SECONDS = 24 * 3600.0
KEPT_SECONDS = 7 * 24 * 3600.0
"""How long deliveries are kept, as in GitLab."""
REMOVE_SECONDS = 600.0
"""How often old deliveries are removed."""
LOOK_SECONDS = 5.0
"""How often due deliveries are looked for, if no event wakes the sender."""
SENT_AT_ONCE = 8
_BATCH = 50
_GATHER_SECONDS = 0.05
_REMEMBERED = 10_000
_CLAIM_SECONDS = 2 * DEADLINE_SECONDS
"""After this time a delivery whose process died is sent again; a request takes at most half of it."""

_log = logger("cell")


class Webhooks:
    def __init__(
        self, *, store: Store, repos: Repositories, changed: ChangedJobs, clock: Clock, settings: CellSettings
    ) -> None:
        self._store = store
        self._repos = repos
        self._changed = changed
        self._clock = clock
        self._settings = settings
        self._hooks: list[Hook] | None = None
        self._read_at = 0.0
        self._news = asyncio.Event()
        self._noticed: dict[str, None] = {}
        """Ids of events that are stored already, so that their bodies are not built again."""

    def look_again(self) -> None:
        """Say that hooks or deliveries have changed: read the hooks anew and look for due deliveries."""
        self._hooks = None
        self._changed.enabled = True
        self._news.set()
        self._changed.news.set()

    async def _list_hooks(self, project: Project) -> list[Hook]:
        owners = {("project", int(project.id)), *(("group", number) for number in project.group_ids)}
        return [hook for hook in await self._list_all() if hook.owner in owners]

    async def _list_all(self) -> list[Hook]:
        """Return all hooks, read at most every `LOOK_SECONDS`: another process may have added one."""
        now = self._clock.monotonic()
        if self._hooks is None or now - self._read_at >= LOOK_SECONDS:
            self._hooks, self._read_at = list(await self._store.hooks.list_all_hooks()), now
        return self._hooks

    async def note_refs(
        self, project: Project, moved: Mapping[str, str], before: Mapping[str, str], users: Mapping[str, int]
    ) -> None:
        """Store deliveries for moved refs. `moved`: the new commit of each full ref, `NO_SHA` if it was deleted;
        `before`: the old commits; `users`: who pushed, if known."""
        hooks = await self._list_hooks(project)
        if not any(hook.events & {PUSH, TAG_PUSH} for hook in hooks):
            return
        for ref, sha in moved.items():
            if not ref.startswith((HEADS, TAGS)):
                continue
            event = TAG_PUSH if ref.startswith(TAGS) else PUSH
            old = before.get(ref, NO_SHA)
            interested = [hook for hook in hooks if wants(hook, event, ref)]
            if interested:
                body = await self.build_push(project, ref, old, sha, users.get(ref, project.creator_id))
                for hook in interested:
                    await self._put(hook, event, body, event_id(hook.id, "ref", project.id, ref, old, sha))

    async def build_push(self, project: Project, ref: str, before: str, after: str, user_id: int) -> bytes:
        """Build the body of a push event."""
        commits: Sequence[Commit] = ()
        if after != NO_SHA and ref.startswith(HEADS):
            commits = await self._list_commits(project, before, after)
        user = await self._store.people.load_user(user_id)
        return push_body(
            project, user, user_id=user_id, ref=ref, before=before, after=after, commits=commits,
            url=self._settings.url,
        )  # fmt: skip

    async def _list_commits(self, project: Project, before: str, after: str) -> Sequence[Commit]:
        """Return the newest commits of a push, by first parents, newest first, at most `MAX_COMMITS`."""
        commits: list[Commit] = []
        sha = after
        while sha != before and len(commits) < MAX_COMMITS:
            commit = await self._repos.commit(project.repo_path, sha)
            if commit is None:
                break
            commits.append(commit)
            if before == NO_SHA or not commit.parents:
                break
            sha = commit.parents[0]
        return commits

    async def build_pipeline(self, project: Project, pipeline: Pipeline) -> bytes:
        family = await self._store.pipelines.load_family(pipeline.id)
        user = await self._store.people.load_user(pipeline.user_id)
        jobs = family.jobs if family else ()
        return pipeline_body(project, pipeline, jobs, user, url=self._settings.url)

    async def build_job(self, project: Project, pipeline: Pipeline, job: Job) -> bytes:
        user = await self._store.people.load_user(pipeline.user_id)
        return job_body(project, pipeline, job, user, url=self._settings.url)

    async def _note_jobs(self, job_ids: Collection[JobId]) -> None:
        pipelines: dict[int, list[Job]] = {}
        for job in await self._store.jobs.load_jobs(job_ids):
            pipelines.setdefault(job.pipeline_id, []).append(job)
        for jobs in pipelines.values():
            project = await self._store.projects.load_project(jobs[0].project_id)
            pipeline = await self._store.pipelines.load_pipeline(jobs[0].pipeline_id)
            if project is not None and pipeline is not None:
                await self._note_pipeline(project, pipeline, jobs, await self._list_hooks(project))

    async def _note_pipeline(
        self, project: Project, pipeline: Pipeline, jobs: Sequence[Job], hooks: Sequence[Hook]
    ) -> None:
        for hook in hooks:
            if wants(hook, JOB):
                for job in [job for job in jobs if not job.is_trigger and is_sent_state(job)]:
                    uuid = event_id(hook.id, "job", job.id, job.status())
                    if job.created_at >= hook.created_at and uuid not in self._noticed:
                        await self._put(hook, JOB, await self.build_job(project, pipeline, job), uuid)
            if wants(hook, PIPELINE) and pipeline.updated_at >= hook.created_at:
                uuid = event_id(hook.id, "pipeline", pipeline.id, pipeline.status, pipeline.finished_at)
                if uuid in self._noticed:
                    continue
                await self._put(hook, PIPELINE, await self.build_pipeline(project, pipeline), uuid)

    async def _put(self, hook: Hook, event: str, body: bytes, uuid: str) -> None:
        now = self._clock.now()
        delivery = HookDelivery(id=0, hook_id=hook.id, uuid=uuid, event=event, body=body, created_at=now, due_at=now)
        if await self._store.hooks.add_delivery(delivery) is not None:
            self._news.set()
        if len(self._noticed) >= _REMEMBERED:
            self._noticed.clear()
        self._noticed[uuid] = None

    async def watch_events(self, stop: asyncio.Event) -> None:
        """Until `stop` is set, store deliveries for pipelines and jobs that change. After the start, and if changes
        were missed, look at all pipelines of the last day in projects with hooks."""
        missed = True
        while not stop.is_set():
            try:
                job_ids, more = self._changed.take()
                is_wanted = any(hook.events & {PIPELINE, JOB} for hook in await self._list_all())
                missed = missed or more or (is_wanted and not self._changed.enabled)
                self._changed.enabled = is_wanted
                if is_wanted:
                    if missed:
                        await self._look_back()
                    await self._note_jobs(job_ids)
                    missed = False
            except CellError as error:
                missed = True
                _log.warning("cannot store events for webhooks; trying again", error=str(error))
            except Exception as error:  # noqa: BLE001 - the cell serves nevertheless
                missed = True
                _log.error("unexpected error in storing events for webhooks; trying again", exc_info=error)
            await wait_for_any_event(
                self._clock, stop, self._changed.news, within_seconds=LOOK_SECONDS, name="webhook events"
            )
            await self._clock.sleep(_GATHER_SECONDS)

    async def _look_back(self) -> None:
        since = self._clock.now() - LOOK_BACK_SECONDS
        for project in await self._list_hooked_projects():
            hooks = await self._list_hooks(project)
            page = Page(size=100, counted=False)
            for source in ("", "parent_pipeline"):
                pipelines, _ = await self._store.pipelines.list_pipelines(
                    project.id, page, PipelineFilter(source=source, updated_after=since)
                )
                for pipeline in pipelines:
                    family = await self._store.pipelines.load_family(pipeline.id)
                    await self._note_pipeline(project, pipeline, family.jobs if family else (), hooks)

    async def _list_hooked_projects(self) -> list[Project]:
        projects: dict[ProjectId, Project] = {}
        for kind, number in {hook.owner for hook in await self._list_all() if hook.events & {PIPELINE, JOB}}:
            if kind == "group":
                rows = await list_all_projects(self._store, ProjectFilter(group_id=number))
            else:
                project = await self._store.projects.load_project(ProjectId(number))
                rows = [project] if project is not None and project.removed_at is None else []
            projects |= {row.id: row for row in rows}
        return list(projects.values())

    async def watch_deliveries(self, stop: asyncio.Event) -> None:
        """Until `stop` is set, send due deliveries, a few at once, and remove old ones."""
        remove_at = self._clock.monotonic()
        while not stop.is_set():
            self._news.clear()
            try:
                while due := await self._claim(self._clock.now()):
                    async with asyncio.TaskGroup() as group:
                        for delivery in due:
                            group.create_task(self.deliver(delivery), name=f"webhook delivery {delivery.id}")
                while self._clock.monotonic() >= remove_at:
                    before = self._clock.now() - KEPT_SECONDS
                    if await self._store.hooks.remove_old_deliveries(before, limit=_BATCH) < _BATCH:
                        remove_at = self._clock.monotonic() + REMOVE_SECONDS
            except CellError as error:
                _log.warning("cannot send webhooks; trying again", error=str(error))
            except Exception as error:  # noqa: BLE001 - the cell serves nevertheless
                _log.error("unexpected error in sending webhooks; trying again", exc_info=error)
            await wait_for_any_event(self._clock, stop, self._news, within_seconds=LOOK_SECONDS, name="webhooks")

    async def _claim(self, now: float) -> list[HookDelivery]:
        """Return due deliveries, after moving their time: no other process sends them, and a death delays them."""
        claimed: list[HookDelivery] = []
        for delivery in await self._store.hooks.list_due_deliveries(now, limit=SENT_AT_ONCE):
            row = await self._store.hooks.change_delivery(delivery.id, partial(_delay, delivery.due_at, now))
            if row is not None:
                claimed.append(row)
        return claimed

    async def deliver(self, delivery: HookDelivery) -> HookDelivery:
        """Send a delivery once and store what came of it."""
        hook, now = await self._store.hooks.load_hook(delivery.hook_id), self._clock.now()
        if hook is None:
            # Stored while the hook was removed; otherwise it would be due again and again.
            await self._store.hooks.remove_hook(delivery.hook_id)
            return delivery
        if hook.disabled_until is not None and hook.disabled_until > now and not delivery.is_test:
            later = replace(delivery, due_at=hook.disabled_until)
            return await self._store.hooks.change_delivery(delivery.id, lambda _: later) or later
        outcome = await send_request(
            address_of(hook),
            headers_of(hook, delivery, self._settings.url),
            body_of(hook, delivery),
            is_verifying=hook.is_verifying,
            allows_local=self._settings.hook_local_addresses,
        )
        outcome = hide_variables(hook, outcome)
        reach("cell.webhook_sent")
        ended = after_try(delivery, outcome, self._clock.now())
        await self._store.hooks.change_delivery(delivery.id, lambda _: ended)
        if not delivery.is_test:
            await self._store.hooks.change_hook(hook.id, lambda row: hook_after(row, outcome, now))
        return ended


def _delay(seen: float | None, now: float, delivery: HookDelivery) -> HookDelivery | None:
    """Return the delivery with the time at which it is due if its process dies; None if another process has changed it
    since it was read, when it was due at `seen`."""
    return replace(delivery, due_at=now + _CLAIM_SECONDS) if delivery.due_at == seen else None
