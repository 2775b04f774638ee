"""Artifacts: upload and download, streamed both ways.

A job may read its own artifacts, those of the jobs that it depends on (while it may read their project), and under
`/projects/:id/jobs` those of any job of its project; a user may read what their level allows. A second upload of the
same type is ignored if it has the same content and refused otherwise. Invariant: every artifact that the store lists
has a complete file in the blob store; a refused upload leaves no file there."""

import secrets
from typing import Literal
from urllib.parse import quote

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.blobs.archives import Entry, find_entry, read_entry
from remuda.cell.core.access.job_token_scope import admits, explain_refusal
from remuda.cell.core.jobs.artifact_expiry import with_expiry
from remuda.cell.core.jobs.blob_keys import artifact_key
from remuda.cell.core.jobs.dotenv import explain_limit, read_dotenv
from remuda.cell.errors import InvalidError, TooLargeError
from remuda.cell.http.edge import auth
from remuda.cell.http.edge.access import JOB, in_project, of_job
from remuda.cell.http.edge.admission import ANONYMOUS, optional_caller
from remuda.cell.http.edge.bodies import Body, choice_in_query, convert
from remuda.cell.http.edge.byte_ranges import Content, answer_content
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import (
    bad_parameter,
    bad_request,
    forbidden,
    json_answer,
    not_found,
    too_large,
    unauthorized,
)
from remuda.cell.http.edge.lookup import any_job_in_path, number_in_path, project_in_path, text_in_path
from remuda.cell.http.edge.multipart import OVERHEAD_BYTES, FilePart
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.edge.streaming import Streamed
from remuda.cell.http.runner.trace import job_headers
from remuda.cell.pipelines.cross_project_access import level_of
from remuda.cell.projects.refs import split_name
from remuda.cell.settings import CellSettings
from remuda.cell.values import Artifact, Job
from remuda.cell.values.people import Level
from remuda.lib.killpoints import reach

ZIP = frozenset({"archive", "lsif", "scip"})
GZIP = frozenset(
    [
        "metadata",
        "junit",
        "metrics",
        "metrics_referee",
        "network_referee",
        "dotenv",
        "cobertura",
        "jacoco",
        "cluster_applications",
        "cyclonedx",
        "annotations",
        "repository_xray",
    ]
)
RAW = frozenset(
    [
        "trace",
        "sast",
        "secret_detection",
        "dependency_scanning",
        "container_scanning",
        "cluster_image_scanning",
        "dast",
        "license_scanning",
        "accessibility",
        "codequality",
        "performance",
        "browser_performance",
        "load_performance",
        "terraform",
        "requirements",
        "requirements_v2",
        "coverage_fuzzing",
        "api_fuzzing",
        "sarif",
    ]
)
_PACKED_DOTENV_BYTES = 64 * 1024
"""Added to the limit for dotenv reports, because compression may make a small file larger."""
_MAY_NOT_READ = "the calling job may not read the artifacts of this job"
_MEDIA = {"zip": "application/zip", "gzip": "application/gzip", "raw": "application/octet-stream"}


_ROOT = "/api/v4/projects/{id}/jobs"
_UPLOAD = {"artifact_type": str, "artifact_format": Literal["zip", "gzip", "raw"], "expire_in": str, "token": str}
_READ = in_project(Level.REPORTER, or_job="artifacts")
_RANGES = (206, 304, 416)
routes = Routes()


class OfRef(msgspec.Struct, kw_only=True):
    job: str
    job_token: str = ""


@routes.post("/api/v4/jobs/{job_id}/artifacts", JOB, takes=bytes, query=_UPLOAD, gives=str)
async def upload(edge: Edge, request: Request) -> Response:
    """Upload an artifact of a job, such as its archive or a report."""
    token, job_id = auth.job_token_in(request), number_in_path(request, "job_id")
    job = await auth.job_of(edge, token, job_id)
    kind = choice_in_query(request, "artifact_type", ZIP | GZIP | RAW, "archive")
    default_format = "zip" if kind in ZIP else "gzip" if kind in GZIP else "raw"
    form = choice_in_query(request, "artifact_format", _MEDIA, default_format)
    limit = _upload_limit(edge.settings, kind)
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length[:18]) > limit + OVERHEAD_BYTES:
        raise _too_large(edge.settings, kind)
    part = FilePart(request.headers.get("content-type", ""), limit_bytes=limit)
    # Each upload has its own key, so that a refused one does not touch the stored one.
    blob = artifact_key(job.id, kind, secrets.token_hex(8))
    try:
        size, sha256 = await edge.blobs.put(blob, part.pieces(Body(request.receive).pieces()), limit_bytes=limit)
    except TooLargeError:
        raise _too_large(edge.settings, kind) from None
    artifact = Artifact(
        job_id=job.id,
        type=kind,
        format=form,
        filename=part.filename or f"{kind}.{form}",
        size=size,
        sha256=sha256,
        blob=blob,
        created_at=edge.clock.now(),
        expire_in=request.query_params.get("expire_in"),
    )
    return await _store(edge, token, with_expiry(artifact, edge.settings.artifacts_expire_in))


async def _store(edge: Edge, token: str, artifact: Artifact) -> Response:
    try:
        if artifact.type == "dotenv":
            artifact = replace(artifact, variables=await _read_variables(edge, artifact.blob))
        # Check again after the upload, which may take long: the job may have been canceled.
        job = await auth.job_of(edge, token, artifact.job_id)
    except BaseException:
        await edge.blobs.remove(artifact.blob)
        raise
    # If this fails the row may still have been written, so the blob stays.
    stored = await edge.store.jobs.put_artifact(artifact)
    if stored.blob != artifact.blob:
        await edge.blobs.remove(artifact.blob)
        if stored.sha256 != artifact.sha256:
            raise bad_request(f"another {artifact.type} artifact of this job is already stored")
    reach("cell.artifact_stored")
    return json_answer("201 Created", 201, job_headers(edge, job))


async def _read_variables(edge: Edge, blob: str) -> dict[str, str]:
    content = b"".join([piece async for piece in edge.blobs.read(blob)])
    limits = edge.settings
    try:
        return read_dotenv(
            content, limit_bytes=limits.dotenv_limit_bytes, limit_variables=limits.dotenv_limit_variables
        )
    except InvalidError as error:
        raise bad_request(str(error)) from None


def _upload_limit(settings: CellSettings, kind: str) -> int:
    limit = settings.artifact_limit_bytes
    return min(limit, settings.dotenv_limit_bytes + _PACKED_DOTENV_BYTES) if kind == "dotenv" else limit


def _too_large(settings: CellSettings, kind: str) -> Exception:
    """Error 413 that names the size limit for artifacts of this type, and how to change it."""
    limit = settings.artifact_limit_bytes
    if _upload_limit(settings, kind) < limit:
        return too_large(explain_limit(settings.dotenv_limit_bytes))
    return too_large(
        f"the artifact is larger than the cell's limit of {limit} bytes; upload less, or raise artifact_limit_bytes"
    )


@routes.get(
    "/api/v4/jobs/{job_id}/artifacts",
    of_job(Level.REPORTER, or_job="artifacts"),
    query={"token": str},
    gives=bytes,
    also=_RANGES,
    headers=("Range", "If-Range", "If-None-Match"),
)
async def download(edge: Edge, request: Request) -> Response:
    """Download the artifacts archive of a job, with a job or user token."""
    token = auth.job_token_in(request)
    if not token:
        return await _answer(edge, request, await any_job_in_path(edge, request))
    caller = await auth.job_of(edge, token, scope="artifacts")
    job = await any_job_in_path(edge, request)
    is_dependency = job.pipeline_id == caller.pipeline_id and job.name in caller.artifacts_from
    if job.id != caller.id and not is_dependency and job.id not in caller.gets:
        raise forbidden(_MAY_NOT_READ)
    if job.project_id != caller.project_id:
        await _check_cross_project(edge, caller, job)
    return await _answer(edge, request, job)


async def _check_cross_project(edge: Edge, caller: Job, job: Job) -> None:
    """Raise ApiError 403 if the calling job may not read artifacts of `job` in another project: its user must be a
    reporter there, and the job token allow list must admit it. Checked for each download, as in GitLab."""
    project, source = (
        await edge.store.projects.load_project(job.project_id),
        await edge.store.projects.load_project(caller.project_id),
    )
    pipeline = await edge.store.pipelines.load_pipeline(caller.pipeline_id)
    if project is None or source is None or pipeline is None:
        raise forbidden(_MAY_NOT_READ)
    if (await level_of(edge.store, pipeline.user_id, project, edge.clock.wall()) or 0) < Level.REPORTER:
        raise forbidden(_MAY_NOT_READ)
    if not admits(project, source, is_reading=True):
        raise forbidden(explain_refusal(project, source))


@routes.get(f"{_ROOT}/artifacts/{{ref}}/download", _READ, takes=OfRef, gives=bytes, also=_RANGES)
async def download_of_ref(edge: Edge, request: Request) -> Response:
    """Download the artifacts archive of the newest successful job with this name on a ref."""
    return await _answer(edge, request, await _find_newest(edge, request))


@routes.get(f"{_ROOT}/artifacts/{{ref}}/raw/{{path:path}}", _READ, takes=OfRef, gives=bytes)
async def file_of_ref(edge: Edge, request: Request) -> Response:
    """Download one file from the artifacts archive of the newest successful job with this name on a ref."""
    return await _one_file(edge, request, await _find_newest(edge, request), text_in_path(request, "path"))


@routes.get(
    f"{_ROOT}/{{job_id}}/artifacts", _READ, query={"file_type": str, "job_token": str}, gives=bytes, also=_RANGES
)
async def download_of_job(edge: Edge, request: Request, job: Job) -> Response:
    """Download the artifact of a job that has the type `file_type`, by default its archive."""
    return await _answer(edge, request, job, request.query_params.get("file_type") or "archive")


@routes.get(f"{_ROOT}/{{job_id}}/artifacts/{{path:path}}", _READ, query={"job_token": str}, gives=bytes)
async def file_of_job(edge: Edge, request: Request, job: Job) -> Response:
    """Download one file from the artifacts archive of a job."""
    return await _one_file(edge, request, job, text_in_path(request, "path"))


async def _find_newest(edge: Edge, request: Request) -> Job:
    project = await project_in_path(edge, request)
    name = convert(dict(request.query_params), OfRef).job
    if not name:
        raise bad_parameter("job is missing")
    ref, is_tag = await split_name(edge.store.projects, project.id, text_in_path(request, "ref"))
    job = await edge.store.jobs.find_newest_success(project.id, ref, name, tag=is_tag)
    if job is None:
        raise not_found("Job")
    return job


async def _find_artifact(edge: Edge, job: Job, kind: str) -> Artifact:
    artifact = next(
        (artifact for artifact in await edge.store.jobs.list_artifacts(job.id) if artifact.type == kind), None
    )
    if artifact is None or await edge.blobs.size(artifact.blob) is None:
        raise not_found("Artifacts")
    return artifact


async def check_access(edge: Edge, request: Request, job: Job) -> None:
    """Raise ApiError 401 if nobody is signed in and the job's `artifacts:access` does not let everybody read."""
    if optional_caller(request) is not ANONYMOUS:
        return
    spec = await edge.store.jobs.load_spec(job.id)
    if spec is None or (spec.artifacts is not None and spec.artifacts.access not in ("", "all")):
        raise unauthorized()


async def _answer(edge: Edge, request: Request, job: Job, kind: str = "archive") -> Response:
    await check_access(edge, request, job)
    if kind != "archive" and optional_caller(request) is ANONYMOUS:
        # Others, such as dotenv reports, are made for later jobs.
        raise unauthorized()
    artifact = await _find_artifact(edge, job, kind)
    content = Content(
        read=lambda start: edge.blobs.read(artifact.blob, start),
        size=artifact.size,
        tag=f'"{artifact.sha256}"',
        media_type=_MEDIA[artifact.format],
        headers=_file_headers(artifact.filename),
    )
    return answer_content(request.headers, content)


async def _one_file(edge: Edge, request: Request, job: Job, path: str) -> Response:
    await check_access(edge, request, job)
    artifact = await _find_artifact(edge, job, "archive")
    limit = edge.settings.archive_limit_entries

    async def find() -> Entry:
        return await find_entry(edge.blobs, artifact.blob, path, limit_entries=limit, run=edge.parsers.run)

    entry = await edge.parsers.entries.find((artifact.blob, path), find)
    # Without ranges: an entry is compressed, so that its end cannot be read without its beginning.
    headers = {**_file_headers(path.rpartition("/")[2]), "Content-Length": str(entry.size), "Accept-Ranges": "none"}
    return Streamed(read_entry(edge.blobs, entry), 200, headers, _MEDIA["raw"])


def _file_headers(name: str) -> dict[str, str]:
    return {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "X-Content-Type-Options": "nosniff",
    }
