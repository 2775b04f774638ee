"""Answers a push: serves it with git, starts its pipelines, and tells the user about them in git's answer.

A push is not held for long: after `HOLD_SECONDS` its client gets the answer without the pipelines that are not created
yet. They are created by the same task afterwards, or by another process if this one dies."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from remuda.cell.core.pipelines.push_messages import SHOWN_REFS, PushAnswer, write_answer
from remuda.cell.errors import CellError
from remuda.cell.git.port import GitClient, GitRequest
from remuda.cell.git.push_report import PushReport
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.projects.refs import split_name
from remuda.cell.values import Page, PipelineFilter, Project
from remuda.cell.values.pushes import PushOutcome
from remuda.lib.waiting import unwrap_group_error, wait_for_event
from remuda.telemetry.logs import logger

HOLD_SECONDS = 10.0
"""How long a client waits for the pipelines of its push after git has moved the refs."""
DESCRIBE_SECONDS = 10.0
"""How long a client waits, after that, until the text about the pipelines is written."""

_log = logger("cell")


async def serve_push(
    edge: Edge, project: Project, request: GitRequest, client: GitClient, end: Callable[[], Awaitable[None]]
) -> str:
    """Serve a push; `end` is called at the end of the answer. Returns the last part of git's stderr, after the
    pipelines of the push are created, which may be after the end of the answer."""
    push = _Push(edge, project, client)
    async with unwrap_group_error(), asyncio.TaskGroup() as group:
        group.create_task(push.end_answer(end), name=f"answer to a push to {project.path}")
        async with edge.projects.track_push(project) as outcomes:
            push.outcomes = outcomes
            stderr = await edge.projects.repos.serve(project.repo_path, request, push.client)
            push.git_ended.set()
        push.processed.set()
    return stderr


class _Push:
    """One push: git's answer to it, and the pipelines that it has started so far."""

    def __init__(self, edge: Edge, project: Project, client: GitClient) -> None:
        self._edge = edge
        self._project = project
        self._send = client.send
        self._report = PushReport()
        self.client = replace(client, send=self._pass_on)
        self.outcomes: dict[str, PushOutcome] = {}
        self.git_ended = asyncio.Event()
        self.processed = asyncio.Event()
        """Set when the pipelines of the push are created."""

    async def _pass_on(self, piece: bytes) -> None:
        if packets := self._report.pass_on(piece):
            await self._send(packets)

    async def end_answer(self, end: Callable[[], Awaitable[None]]) -> None:
        """Send the end of the answer as soon as the pipelines are created, but at most `HOLD_SECONDS` after git."""
        await self.git_ended.wait()
        is_processed = await wait_for_event(self.processed, within_seconds=HOLD_SECONDS)
        text = ""
        if self._report.can_show_text and (refs := self._report.accepted_refs()):
            try:
                async with asyncio.timeout(DESCRIBE_SECONDS):
                    text = write_answer(await self._describe(refs, is_processed=is_processed))
            except TimeoutError:
                _log.warning("cannot tell the client of a push about its pipelines in time", project=self._project.path)
            except CellError as error:
                _log.warning(
                    "cannot tell the client of a push about its pipelines", project=self._project.path, error=str(error)
                )
            except Exception as error:  # noqa: BLE001 - an answer without text must not stop the creation of pipelines
                _log.error("unexpected error in the answer to a push", project=self._project.path, exc_info=error)
        await self._send(self._report.finish(text))
        await end()

    async def _describe(self, refs: Sequence[str], *, is_processed: bool) -> PushAnswer:
        outcomes: list[PushOutcome] = []
        unfinished: list[str] = []
        looked_for = 0
        for ref in refs:
            outcome = self.outcomes.get(ref)
            if outcome is None and looked_for < SHOWN_REFS:
                looked_for += 1
                if not await self._edge.projects.has_ref(self._project, ref):
                    continue  # The push has deleted it.
                if not is_processed:
                    unfinished.append(ref)
                    continue
                outcome = await self._find_pipeline(ref)
            if outcome is not None:
                outcomes.append(outcome)
        pipelines = [outcome for outcome in outcomes if outcome.pipeline and outcome.jobs][:SHOWN_REFS]
        missing = await self._edge.dispatch.explanations.explain_missing_runners([each.jobs for each in pipelines])
        return PushAnswer(
            project=self._project.path,
            url=self._edge.settings.url,
            outcomes=outcomes,
            unfinished=unfinished,
            missing_runners={
                each.pipeline.id: texts for each, texts in zip(pipelines, missing, strict=True) if each.pipeline
            },
        )

    async def _find_pipeline(self, ref: str) -> PushOutcome | None:
        """Return the newest pipeline of a ref, which another process of the cell has created; None if it has none."""
        store, project = self._edge.store, self._project
        sha = await self._edge.projects.repos.commit_of(project.repo_path, ref)
        name, tag = await split_name(store.projects, project.id, ref)
        chosen = PipelineFilter(ref=name, tag=tag if ref != name else None, sha=sha or "")
        pipelines, _ = await store.pipelines.list_pipelines(project.id, Page(size=1), chosen)
        family = await store.pipelines.load_family(pipelines[0].id) if pipelines else None
        if sha is None or family is None:
            return None
        pipeline = family.pipeline
        return PushOutcome(
            ref=ref, sha=sha, pipeline=pipeline, jobs=family.jobs, file=pipeline.file, reason=pipeline.yaml_errors or ""
        )
