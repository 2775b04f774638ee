"""The state of the whole cell for its administrators: usage over time, health, settings; and runners with problems, for
those who manage them. Nothing here has a secret."""

import asyncio
import platform
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request

from remuda import __version__
from remuda.cell.core.payload.predefined_variables import GITLAB_VERSION
from remuda.cell.core.waiting import usage
from remuda.cell.core.waiting.runner_problems import count_outcomes, find_problems
from remuda.cell.core.waiting.usage import UsagePoint
from remuda.cell.http.edge.access import ADMINISTRATOR, USER
from remuda.cell.http.edge.admission import Caller
from remuda.cell.http.edge.bodies import number_in_query
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import bad_parameter
from remuda.cell.http.edge.health import check_parts
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.runners import list_managed_pools
from remuda.cell.http.gitlab.views import time_text
from remuda.cell.values import JobFilter, Page
from remuda.model.job import JobState

RECENT_JOBS = 500
"""How many of the newest ended jobs count for the failure rates of runners."""
_POINTS = 120
_SECRETS = ("token", "secret", "password", "encryption_keys")
"""The ends of the names of secret settings."""
_PASSWORD = re.compile(r"(?<=://)([^/@:]*):.*@")
_TASK = re.compile(r"cell (.*?)(?: \d+|:.*)?")
"""The name of a background task; workers of a task have its name and a number or a text after a colon."""
routes = Routes()


class DiskShape(Shape, kw_only=True):
    path: str
    total_bytes: int
    free_bytes: int


class UsagePointShape(Shape, kw_only=True):
    at: str
    running: int | None
    waiting: int | None
    slots: int | None


class UsageShape(Shape, kw_only=True):
    """The usage of the cell now and over time. Null: the cell did not run then."""

    running: int
    waiting: int
    slots: int
    """Jobs that the managers which take jobs could run at a time."""
    managers: int
    disk: DiskShape | None
    """The file system of the data folder; null if it cannot be read."""
    interval_seconds: int
    points: list[UsagePointShape]
    """The highest values of each interval, oldest first."""


@routes.get("/api/remuda/v1/usage", ADMINISTRATOR, query={"hours": int})
async def show_usage(edge: Edge, request: Request) -> UsageShape:
    """Show running and waiting jobs and slots, now and over the last hours (6, at most 24)."""
    hours = number_in_query(request, "hours")
    hours = 6 if hours is None else hours
    if not 1 <= hours <= usage.HOURS:
        raise bad_parameter(f"hours is invalid: from 1 to {usage.HOURS}")
    current = await edge.usage.measure()
    step = max(hours * 3600 // _POINTS, usage.INTERVAL_SECONDS)
    end = current.at // step * step + step
    begin = end - hours * 3600
    samples = usage.read_samples((await edge.usage.load_stored()).values(), since=begin)
    points = usage.summarize([*samples, current], begin=begin, end=end, step=step)
    disk, _ = await asyncio.to_thread(_measure_disk, edge.settings.data)
    return UsageShape.of(current, disk=disk, interval_seconds=step, points=[_point(point) for point in points])


def _point(point: UsagePoint) -> UsagePointShape:
    return UsagePointShape.of(point, at=time_text(point.at) or "")


class RunnerProblemShape(Shape, kw_only=True):
    id: int
    description: str
    runner_type: str
    kind: str
    """blocked, failing, offline or silent"""
    text: str
    contacted_at: str | None
    running: int


@routes.get("/api/remuda/v1/runner_problems", USER)
async def list_runner_problems(edge: Edge, caller: Caller) -> list[RunnerProblemShape]:
    """List runners that the caller manages and that are blocked, offline or silent, or whose jobs fail often."""
    pools = await list_managed_pools(edge, caller)
    views = await edge.dispatch.explanations.load_runners(reuse_seconds=0)
    if pools is not None:
        views = tuple(view for view in views if not view.runner.pools().isdisjoint(pools))
    selection = JobFilter(states=[JobState.SUCCESS.value, JobState.FAILED.value], with_retried=True)
    jobs, _ = await edge.store.jobs.list_jobs(Page(size=RECENT_JOBS, counted=False), selection) if views else ((), 0)
    now = edge.clock.now()
    return [
        RunnerProblemShape.of(
            problem.view.runner,
            runner_type=problem.view.runner.type.value,
            kind=problem.kind,
            text=problem.text,
            contacted_at=time_text(problem.view.contacted_at),
            running=problem.view.jobs,
        )
        for problem in find_problems(views, count_outcomes(jobs, now), now)
    ]


class HealthShape(Shape, kw_only=True):
    status: str
    """ok, or failed if a part of the cell fails."""
    parts: dict[str, dict[str, str]]
    version: str
    gitlab_version: str
    python: str
    system: str
    cell_id: int
    url: str
    store: str
    store_bytes: int | None
    """Size of the SQLite file; null for another database."""
    blobs: str
    disk: DiskShape | None
    """The file system of the data folder; null if it cannot be read."""
    running_since: str | None
    tasks: list[str]
    """Background tasks of the process that answers."""
    event_streams: int
    held_requests: int
    """Job requests that wait for a job (long polling)."""
    waiting: int
    running: int


@routes.get("/api/remuda/v1/health", ADMINISTRATOR)
async def show_health(edge: Edge) -> HealthShape:
    """Show whether all parts of the cell work, its versions, store, disk and background tasks."""
    parts = await check_parts(edge)
    settings, memory = edge.settings, edge.dispatch.memory
    disk, store_bytes = await asyncio.to_thread(_measure_disk, settings.data)
    names = {task.get_name() for task in asyncio.all_tasks() if not task.done()}
    return HealthShape(
        status="ok" if all(part["status"] == "ok" for part in parts.values()) else "failed",
        parts=parts,
        version=__version__,
        gitlab_version=GITLAB_VERSION,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cell_id=settings.cell_id,
        url=settings.url,
        store="PostgreSQL" if settings.is_shared else "SQLite",
        store_bytes=None if settings.is_shared else store_bytes,
        blobs=_without_password(settings.blobs) or "folder blobs in the data folder",
        disk=disk,
        running_since=time_text(memory.listening_since),
        tasks=sorted({match[1] for name in names if (match := _TASK.fullmatch(name))}),
        event_streams=len(edge.events),
        held_requests=len(memory.held_polls),
        waiting=len(memory.waiting_jobs),
        running=len(memory.assigned_jobs),
    )


def _measure_disk(folder: Path) -> tuple[DiskShape | None, int | None]:
    """Return the size and free space of the file system of a folder, and the size of the SQLite files in it."""
    try:
        space = shutil.disk_usage(folder)
        store = sum(file.stat().st_size for file in folder.glob("cell.sqlite*"))
    except OSError:
        return None, None
    return DiskShape(path=str(folder), total_bytes=space.total, free_bytes=space.free), store


class SettingShape(Shape, kw_only=True):
    name: str
    value: Any
    default: Any
    source: str
    """default, or where the value comes from: a file, a variable, `option`, or `start` if that is not known."""
    hidden: bool
    """The value is a secret: it is null, and so is the default."""


@routes.get("/api/remuda/v1/settings", ADMINISTRATOR)
async def list_settings(edge: Edge) -> list[SettingShape]:
    """List the settings with which this process of the cell runs, without secrets."""
    return describe_settings(edge.settings, edge.setting_sources)


def describe_settings(settings: msgspec.Struct, sources: Mapping[str, str], prefix: str = "") -> list[SettingShape]:
    """Return the settings and where each comes from. `prefix`: the table that contains them, with a dot."""
    shapes: list[SettingShape] = []
    for field in msgspec.structs.fields(type(settings)):
        value = getattr(settings, field.name)
        name = f"{prefix}{field.name}"
        if isinstance(value, msgspec.Struct):
            shapes += describe_settings(value, sources, f"{name}.")
            continue
        default = None if field.default is msgspec.NODEFAULT else field.default
        is_hidden = field.name.endswith(_SECRETS)
        given = sources.get(name) or sources.get(name.partition(".")[0])
        shapes.append(
            SettingShape(
                name=name,
                value=None if is_hidden else _plain(value),
                default=None if is_hidden else _plain(default),
                source=given or ("default" if value == default else "start"),
                hidden=is_hidden,
            )
        )
    return shapes


def _plain(value: object) -> object:
    if isinstance(value, str):
        return _without_password(value)
    if isinstance(value, tuple | frozenset):
        return [_plain(item) for item in value]
    return value if isinstance(value, int | float | None) else str(value)


def _without_password(address: str) -> str:
    """An address without the password in it: `postgresql://remuda:***@db/remuda`."""
    return _PASSWORD.sub(r"\1:***@", address.partition("?")[0] if address.startswith("postgres") else address)
