"""Health, readiness, metrics and version of the cell."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from msgspec import UNSET, UnsetType
from starlette.responses import Response

from remuda import __version__
from remuda.cell.core.payload.predefined_variables import GITLAB_VERSION
from remuda.cell.errors import CellError
from remuda.cell.http.edge.access import OPEN, USER
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import json_answer
from remuda.cell.http.edge.routes import Routes
from remuda.model.job import JobId
from remuda.telemetry.metrics import CONTENT_TYPE

_CHECK_SECONDS = 5


routes = Routes()


class VersionShape(Shape, kw_only=True):
    version: str = GITLAB_VERSION
    revision: str = f"remuda-{__version__}"
    kas: dict[str, Any] | UnsetType = UNSET
    enterprise: bool | UnsetType = UNSET


@routes.get("/-/health", OPEN, gives=bytes)
@routes.get("/-/liveness", OPEN, gives=bytes)
async def health(edge: Edge) -> Response:
    """Answer as long as the process serves requests."""
    return Response("Remuda OK\n", media_type="text/plain")


@routes.get("/-/readiness", OPEN, gives=dict[str, Any], also=(503,))
async def readiness(edge: Edge) -> Response:
    """Check that the store, job logs (traces), artifacts (blobs) and git work; 503 if one does not."""
    parts = await check_parts(edge)
    is_ready = all(part["status"] == "ok" for part in parts.values())
    return json_answer({"status": "ok" if is_ready else "failed", "parts": parts}, 200 if is_ready else 503)


async def check_parts(edge: Edge) -> dict[str, dict[str, str]]:
    """Check the parts of the cell. Each has a `status` (ok or failed) and, if it failed, a `message`."""
    return {
        "store": await _check_part(edge.store.check_writable()),
        "traces": await _check_part(edge.traces.size(JobId(0))),
        "blobs": await _check_part(edge.blobs.size("readiness")),
        "git": await _check_part(asyncio.to_thread(edge.projects.repos.prepare)),
    }


async def _check_part(check: Awaitable[object]) -> dict[str, str]:
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            await check
    except (CellError, OSError, TimeoutError) as error:
        return {"status": "failed", "message": str(error) or f"no answer within {_CHECK_SECONDS} s"}
    return {"status": "ok"}


@routes.get("/-/metrics", OPEN, gives=bytes)
async def metrics(edge: Edge) -> Response:
    """Show metrics in the Prometheus text format."""
    text = edge.metrics.text(
        jobs=await edge.store.jobs.count_jobs(),
        pipelines=await edge.store.pipelines.count_pipelines(),
        ended_jobs=edge.dispatch.memory.ended_jobs,
        ended_pipelines=edge.dispatch.memory.ended_pipelines,
        waiting=len(edge.dispatch.memory.waiting_jobs),
        polls=len(edge.dispatch.memory.held_polls),
        watchers=len(edge.events),
    )
    return Response(text, headers={"Content-Type": CONTENT_TYPE})


@routes.get("/api/v4/version", USER.with_scopes("read_user"))
async def version(edge: Edge) -> VersionShape:
    """Show the version of GitLab whose API the cell offers, and Remuda's own version."""
    return VersionShape()


@routes.get("/api/v4/metadata", USER.with_scopes("read_user"))
async def metadata(edge: Edge) -> VersionShape:
    """Show the versions of GitLab's API and of Remuda, in the longer form that newer clients read."""
    kas = {"enabled": False, "externalUrl": None, "version": None}
    return VersionShape(kas=kas, enterprise=False)
