"""Artifacts up and down, streamed both ways.

Decided here: who may read which job's artifacts (its own job; a job that gets them, of the same pipeline; a user), and
what a second upload of the same type comes to. The limit is a setting; where the bytes lie is up to the blob store.

Invariant: a row in the store names a blob that is complete; a refused upload leaves no blob.
"""

import secrets
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from remuda.cell.errors import TooLargeError
from remuda.cell.http import auth
from remuda.cell.http.bodies import Body
from remuda.cell.http.edge import Edge, Endpoint
from remuda.cell.http.errors import bad_parameter, bad_request, forbidden, json_answer, not_found, too_large
from remuda.cell.http.lookup import any_job_in_path, job_in_path, number_in_path
from remuda.cell.http.multipart import OVERHEAD_BYTES, FilePart
from remuda.cell.http.trace import job_headers
from remuda.cell.values import Artifact, Job
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
_MEDIA = {"zip": "application/zip", "gzip": "application/gzip", "raw": "application/octet-stream"}


async def upload(edge: Edge, request: Request) -> Response:
    """POST /jobs/:id/artifacts."""
    token, job_id = auth.job_token_in(request), number_in_path(request, "job_id")
    job = await auth.job_of(edge, token, job_id)
    kind = request.query_params.get("artifact_type") or "archive"
    if kind not in ZIP | GZIP | RAW:
        raise bad_parameter("artifact_type does not have a valid value")
    form = request.query_params.get("artifact_format") or ("zip" if kind in ZIP else "gzip" if kind in GZIP else "raw")
    if form not in _MEDIA:
        raise bad_parameter("artifact_format does not have a valid value")
    limit = edge.settings.artifact_limit_bytes
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length[:18]) > limit + OVERHEAD_BYTES:
        raise _too_large(limit)
    part = FilePart(request.headers.get("content-type", ""), limit_bytes=limit)
    # A key of its own for each upload: one that is refused later must not have touched the one that is there.
    blob = f"artifacts/{job.id}/{kind}-{secrets.token_hex(8)}"
    try:
        size, sha256 = await edge.blobs.put(blob, part.pieces(Body(request.receive).pieces()), limit_bytes=limit)
    except TooLargeError:
        raise _too_large(limit) from None
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
    return await _store(edge, token, artifact)


async def _store(edge: Edge, token: str, artifact: Artifact) -> Response:
    try:
        # An upload may take long: the job may have been canceled meanwhile, and then nothing more is taken.
        job = await auth.job_of(edge, token, artifact.job_id)
    except BaseException:
        await edge.blobs.remove(artifact.blob)
        raise
    # When this fails nobody knows whether the row is there, so the blob stays.
    stored = await edge.store.put_artifact(artifact)
    if stored.blob != artifact.blob:
        await edge.blobs.remove(artifact.blob)
        if stored.sha256 != artifact.sha256:
            raise bad_request(f"another {artifact.type} artifact of this job is already stored")
    reach("cell.artifact_stored")
    return json_answer("201 Created", 201, job_headers(edge, job))


def _too_large(limit: int) -> Exception:
    return too_large(
        f"the artifact is larger than the cell's limit of {limit} bytes; upload less, or raise artifact_limit_bytes"
    )


async def download(edge: Edge, request: Request) -> Response:
    """GET /jobs/:id/artifacts, by job or user token."""
    token = auth.job_token_in(request)
    if not token:
        await auth.user_of(edge, auth.user_token_in(request.headers))
        return await _archive(edge, await any_job_in_path(edge, request))
    caller = await auth.job_of(edge, token)
    wanted = await any_job_in_path(edge, request)
    if wanted.id != caller.id and not (
        wanted.pipeline_id == caller.pipeline_id and wanted.name in caller.artifacts_from
    ):
        raise forbidden("the job does not get artifacts of that one")
    return await _archive(edge, wanted)


async def download_for_user(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/jobs/:job_id/artifacts."""
    job, _ = await job_in_path(edge, request)
    return await _archive(edge, job)


async def _archive(edge: Edge, job: Job) -> Response:
    found = [artifact for artifact in await edge.store.artifacts(job.id) if artifact.type == "archive"]
    if not found or await edge.blobs.size(found[0].blob) is None:
        raise not_found("Artifacts")
    artifact = found[0]
    headers = {
        "Content-Length": str(artifact.size),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(artifact.filename, safe='')}",
    }
    return StreamingResponse(edge.blobs.read(artifact.blob), 200, headers, _MEDIA[artifact.format])


ENDPOINTS = (
    Endpoint("POST", "/api/v4/jobs/{job_id}/artifacts", upload, is_open=True),
    Endpoint("GET", "/api/v4/jobs/{job_id}/artifacts", download, is_open=True),
    Endpoint("GET", "/api/v4/projects/{id}/jobs/{job_id}/artifacts", download_for_user),
)
