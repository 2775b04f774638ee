"""Health, readiness, metrics and version of the cell."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from remuda import __version__
from remuda.cell.core.payload.predefined_variables import GITLAB_VERSION
from remuda.cell.errors import CellError
from remuda.cell.http.edge.access import OPEN, USER
from remuda.cell.http.edge.endpoints import Edge, Endpoint, Shape
from remuda.cell.http.edge.errors import json_answer
from remuda.model.job import JobId
from remuda.telemetry.metrics import CONTENT_TYPE

_CHECK_SECONDS = 5


class VersionShape(Shape, kw_only=True):
    version: str = GITLAB_VERSION
    revision: str = f"remuda-{__version__}"
    kas: dict[str, Any] | UnsetType = UNSET
    enterprise: bool | UnsetType = UNSET


async def health(edge: Edge, request: Request) -> Response:
    """GET /-/health: answers as long as the process serves requests."""
    return Response("Remuda OK\n", media_type="text/plain")


async def readiness(edge: Edge, request: Request) -> Response:
    """GET /-/readiness: check that the store, traces, blobs and git work; 503 if one does not."""
    parts = {
        "store": await _part(edge.store.check_writable()),
        "traces": await _part(edge.traces.size(JobId(0))),
        "blobs": await _part(edge.blobs.size("readiness")),
        "git": await _part(asyncio.to_thread(edge.projects.repos.prepare)),
    }
    is_ready = all(part["status"] == "ok" for part in parts.values())
    return json_answer({"status": "ok" if is_ready else "failed", "parts": parts}, 200 if is_ready else 503)


async def _part(check: Awaitable[object]) -> dict[str, str]:
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            await check
    except (CellError, OSError, TimeoutError) as error:
        return {"status": "failed", "message": str(error) or f"no answer within {_CHECK_SECONDS} s"}
    return {"status": "ok"}


async def metrics(edge: Edge, request: Request) -> Response:
    """GET /-/metrics: metrics in the Prometheus text format."""
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


async def version(edge: Edge, request: Request) -> Response:
    """GET /version: the version of GitLab whose API this is, and Remuda's own."""
    return json_answer(VersionShape())


async def metadata(edge: Edge, request: Request) -> Response:
    """GET /metadata: the version, in the longer form that newer clients read."""
    kas = {"enabled": False, "externalUrl": None, "version": None}
    return json_answer(VersionShape(kas=kas, enterprise=False))


ENDPOINTS = (
    Endpoint("GET", "/-/health", health, OPEN, gives=bytes),
    Endpoint("GET", "/-/liveness", health, OPEN, gives=bytes),
    Endpoint("GET", "/-/readiness", readiness, OPEN, gives=dict[str, Any], also=(503,)),
    Endpoint("GET", "/-/metrics", metrics, OPEN, gives=bytes),
    Endpoint("GET", "/api/v4/version", version, USER.with_scopes("read_user"), gives=VersionShape),
    Endpoint("GET", "/api/v4/metadata", metadata, USER.with_scopes("read_user"), gives=VersionShape),
)
