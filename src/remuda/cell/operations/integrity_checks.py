"""Implements `remuda cell check`: finds rows that refer to a missing row, repository, artifact, LFS object or
log, and missing keys.

Changes nothing. The cell may run meanwhile: it writes a file before the row that refers to it."""

from collections.abc import AsyncIterator

import msgspec

from remuda.cell.blobs.port import Blobs
from remuda.cell.errors import CellError
from remuda.cell.operations.blob_ownership import open_blobs
from remuda.cell.operations.data_folder import check_is_cell
from remuda.cell.secrets.key_files import CHECK, load_seals
from remuda.cell.secrets.resealing import count_keys_in_use
from remuda.cell.settings import CellSettings
from remuda.cell.store import migrations
from remuda.cell.store.row_bodies import decode
from remuda.cell.store.snapshots import Snapshot, check_revision, read
from remuda.cell.traces.archive import ArchivedTraces
from remuda.cell.traces.files import FileTraces
from remuda.cell.traces.port import Traces
from remuda.cell.values import Artifact, Job, Project
from remuda.cell.values.lfs import LfsObject

COUNTED = (
    "organizations",
    "namespaces",
    "users",
    "projects",
    "pipelines",
    "jobs",
    "runners",
    "artifacts",
    "schedules",
    "lfs_objects",
)
REFERENCES = (
    ("pipelines", "project_id", "projects"),
    ("jobs", "project_id", "projects"),
    ("jobs", "pipeline_id", "pipelines"),
    ("jobs", "spec_id", "specs"),
    ("results", "job_id", "jobs"),
    ("artifacts", "job_id", "jobs"),
    ("managers", "runner_id", "runners"),
    ("seen_refs", "project_id", "projects"),
    ("schedules", "project_id", "projects"),
    ("triggers", "project_id", "projects"),
    ("releases", "project_id", "projects"),
    ("lfs_objects", "project_id", "projects"),
    ("lfs_locks", "project_id", "projects"),
    ("lfs_usage", "project_id", "projects"),
    ("environments", "project_id", "projects"),
    ("deployments", "project_id", "projects"),
    ("deployments", "environment_id", "environments"),
    ("resource_groups", "project_id", "projects"),
    ("hook_deliveries", "hook_id", "hooks"),
    ("variables", "project_id", "projects"),
    ("variables", "group_id", "namespaces"),
    ("namespaces", "parent_id", "namespaces"),
    ("namespaces", "organization_id", "organizations"),
    ("users", "organization_id", "organizations"),
    ("members", "user_id", "users"),
    ("web_sessions", "user_id", "users"),
    ("sign_in_links", "user_id", "users"),
    ("identities", "user_id", "users"),
)
_LISTED = 100
"""How many problems of one kind are listed."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check: how many rows each table has, and the problems that were found."""

    cell_id: int
    revision: str
    counts: dict[str, int] = {}
    problems: tuple[str, ...] = ()


async def check_cell(settings: CellSettings) -> Report:
    """Check a cell, which may be running. DataFolderError if there is none, or a newer release has written its data."""
    async with read(settings) as tables:
        check_revision(tables)
        check_is_cell(settings.data)
        blobs = await open_blobs(settings, settings.data / "blobs")
        try:
            return await check(tables, settings, ArchivedTraces(FileTraces(settings.data / "traces"), blobs), blobs)
        finally:
            await blobs.close()


async def check(tables: Snapshot, settings: CellSettings, traces: Traces, blobs: Blobs) -> Report:
    """Check the rows of a snapshot and the files that they name. If the database has an older schema, only that is
    reported. Raises DataFolderError if its schema is newer than this release."""
    check_revision(tables)
    if tables.revision != migrations.HEAD:
        problem = f"schema version {tables.revision}, this release needs {migrations.HEAD}; run `remuda cell migrate`"
        return Report(cell_id=tables.cell_id, revision=tables.revision, problems=(problem,))
    counts = {}
    for table in COUNTED:
        async for (count,) in tables.rows(f"SELECT count(*) FROM {table}"):
            counts[table] = count
    problems: list[str] = []
    for kind in (
        _find_missing_keys(tables, settings),
        find_dangling_rows(tables),
        _find_missing_repositories(tables, settings),
        _find_missing_blobs(tables, blobs),
        _find_missing_lfs(tables, blobs),
        _find_missing_traces(tables, traces),
    ):
        problems += await _collect(kind)
    return Report(cell_id=tables.cell_id, revision=tables.revision, counts=counts, problems=tuple(problems))


async def _collect(problems: AsyncIterator[str]) -> list[str]:
    listed: list[str] = []
    more = 0
    async for problem in problems:
        if len(listed) < _LISTED:
            listed.append(problem)
        else:
            more += 1
    return [*listed, f"... and {more} more of this kind"] if more else listed


async def _find_missing_keys(tables: Snapshot, settings: CellSettings) -> AsyncIterator[str]:
    async for (checked,) in tables.rows(f"SELECT value FROM settings WHERE name = '{CHECK}'"):
        try:
            available = load_seals(settings, checked).keys.by_id
        except CellError as error:
            yield str(error)
            return
        for key, rows in (await count_keys_in_use(settings)).items():
            if key and key not in available:
                yield f"{rows} rows are encrypted with key {key}, which is missing; see `remuda cell encryption list`"


async def find_dangling_rows(tables: Snapshot) -> AsyncIterator[str]:
    for table, column, target in REFERENCES:
        sql = (
            f"SELECT {column}, count(*) FROM {table} WHERE {column} IS NOT NULL AND {column} != 0"
            f" AND NOT EXISTS (SELECT 1 FROM {target} WHERE {target}.id = {table}.{column})"
            f" GROUP BY {column} ORDER BY {column}"
        )
        if table == target:
            sql = sql.replace(f"FROM {target} WHERE {target}.id", f"FROM {target} AS t WHERE t.id")
        async for number, count in tables.rows(sql):
            yield f"{table}: {count} rows refer to {target} {number}, which does not exist"


async def _find_missing_repositories(tables: Snapshot, settings: CellSettings) -> AsyncIterator[str]:
    async for (body,) in tables.rows("SELECT body FROM projects ORDER BY id"):
        project = decode(Project, body)
        if project.removed_at is None and not (settings.data / "repos" / project.repo_path / "HEAD").exists():
            yield f"project {project.id} ({project.path}): its repository {project.repo_path} is missing"


async def _find_missing_blobs(tables: Snapshot, blobs: Blobs) -> AsyncIterator[str]:
    async for (body,) in tables.rows("SELECT body FROM artifacts ORDER BY job_id, type"):
        artifact = decode(Artifact, body)
        size = await blobs.size(artifact.blob)
        if size != artifact.size:
            state = "is missing" if size is None else f"has {size} bytes"
            yield f"job {artifact.job_id}: its {artifact.type} ({artifact.size} bytes, {artifact.blob}) {state}"


async def _find_missing_lfs(tables: Snapshot, blobs: Blobs) -> AsyncIterator[str]:
    async for (body,) in tables.rows("SELECT body FROM lfs_objects ORDER BY project_id, oid"):
        stored = decode(LfsObject, body)
        size = await blobs.size(stored.blob)
        if size != stored.size:
            state = "is missing" if size is None else f"has {size} bytes"
            yield f"project {stored.project_id}: LFS object {stored.oid} ({stored.size} bytes, {stored.blob}) {state}"


async def _find_missing_traces(tables: Snapshot, traces: Traces) -> AsyncIterator[str]:
    async for (body,) in tables.rows("SELECT body FROM jobs ORDER BY id"):
        job = decode(Job, body)
        if job.trace_checksum is not None and not job.erased and job.trace_bytes:
            size = await traces.size(job.id)
            if size != job.trace_bytes:
                yield f"job {job.id}: its log has {size} bytes, not the {job.trace_bytes} that were sealed"
