"""Objects of Git LFS: says which a client must transfer (batch), receives, verifies and sends them.

An object belongs to the project to which it was uploaded, and only who may read that project can read it; who knows an
oid alone gets nothing. So each project has its own copy. An upload is streamed into a blob of its own key; the row is
stored after size and SHA-256 are checked. Invariant: every object in the store has its complete file in the blob
storage. A refused upload leaves nothing; if the process dies in between, `operations.upkeep` removes the blob."""

import secrets
from collections.abc import Awaitable
from typing import Literal, Protocol

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.core.jobs.blob_keys import lfs_key
from remuda.cell.core.lfs_batch import Answer, Limits, Wanted, answer_batch, is_oid
from remuda.cell.errors import QuotaExceededError, TooLargeError
from remuda.cell.http.edge.bodies import Body, parameters
from remuda.cell.http.edge.byte_ranges import Content, answer_content
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import too_large
from remuda.cell.http.git.git_access import GitAccess, GitRefusedError
from remuda.cell.http.git.lfs_answers import answer_lfs
from remuda.cell.values import Project
from remuda.cell.values.lfs import LfsObject
from remuda.lib.clock import rfc3339
from remuda.lib.killpoints import reach

MAX_OBJECTS = 1000
"""Most objects of one batch request. git-lfs sends 100."""
_MEDIA = "application/octet-stream"


class Check(Protocol):
    """Checks again what the caller of this request may do; raises GitRefusedError if it is not allowed (any more)."""

    def __call__(self, *, is_push: bool) -> Awaitable[GitAccess]: ...


class Ref(msgspec.Struct, kw_only=True):
    name: str = ""


class Batch(msgspec.Struct, kw_only=True):
    operation: Literal["download", "upload"]
    objects: list[Wanted]
    transfers: list[str] = []
    ref: Ref | None = None
    hash_algo: str = "sha256"


class ActionShape(Shape, kw_only=True):
    """Where and with which headers a client transfers or verifies an object."""

    href: str
    header: dict[str, str]
    expires_at: str | UnsetType = UNSET


class ProblemShape(Shape, kw_only=True):
    code: int
    message: str


class ObjectShape(Shape, kw_only=True):
    oid: str
    size: int
    authenticated: bool | UnsetType = UNSET
    actions: dict[str, ActionShape] | UnsetType = UNSET
    error: ProblemShape | UnsetType = UNSET


class BatchShape(Shape, kw_only=True):
    transfer: str = "basic"
    objects: list[ObjectShape]
    hash_algo: str = "sha256"


async def batch(edge: Edge, request: Request, access: GitAccess, check: Check) -> Response:
    """Say which LFS objects a client must download or upload, and where."""
    wanted = await parameters(request, Batch, limit_bytes=edge.settings.body_limit_bytes)
    if wanted.operation == "upload":
        access = await check(is_push=True)
    if wanted.hash_algo != "sha256":
        raise GitRefusedError(409, f"hash_algo {wanted.hash_algo[:50]!r} is not supported; use sha256")
    if wanted.transfers and "basic" not in wanted.transfers:
        raise GitRefusedError(422, "transfers: only the transfer adapter basic is supported")
    if len(wanted.objects) > MAX_OBJECTS:
        raise GitRefusedError(413, f"objects: a request may have {MAX_OBJECTS} objects; send several requests")
    project_id = access.project.id
    oids = {item.oid for item in wanted.objects if is_oid(item.oid)}
    settings, quota = edge.settings, edge.settings.lfs_project_limit_bytes
    answers = answer_batch(
        wanted.operation,
        wanted.objects,
        await edge.store.lfs.find_objects(project_id, oids),
        Limits(
            object_bytes=settings.lfs_limit_bytes,
            quota_bytes=quota,
            used_bytes=await edge.store.lfs.count_bytes(project_id) if quota else 0,
        ),
    )
    links = _Links(edge, request, access)
    return answer_lfs(BatchShape(objects=[links.describe(wanted.operation, answer) for answer in answers]))


class _Links:
    """Builds the addresses for the transfer of objects. They need the same token as the batch request, so the client is
    told to send the header `Authorization` again, as GitLab does; they expire with a token that expires."""

    def __init__(self, edge: Edge, request: Request, access: GitAccess) -> None:
        self._root = f"{edge.settings.url}/{access.project.path}.git"
        token = request.headers.get("authorization")
        self._header = {"Authorization": token} if token else {}
        expires_at = access.caller.token.expires_at if access.caller else None
        self._expires_at = UNSET if expires_at is None else rfc3339(expires_at)

    def describe(self, operation: Literal["download", "upload"], answer: Answer) -> ObjectShape:
        if answer.code:
            error = ProblemShape(code=answer.code, message=answer.message)
            return ObjectShape(oid=answer.oid, size=answer.size, error=error)
        if not answer.transfers:
            return ObjectShape(oid=answer.oid, size=answer.size)
        place = f"gitlab-lfs/objects/{answer.oid}"
        if operation == "download":
            actions = {"download": self._action(place)}
        else:
            upload = self._action(f"{place}/{answer.size}")
            upload.header = {**upload.header, "Content-Type": _MEDIA}
            actions = {"upload": upload, "verify": self._action("info/lfs/objects/verify")}
        return ObjectShape(oid=answer.oid, size=answer.size, authenticated=bool(self._header), actions=actions)

    def _action(self, place: str) -> ActionShape:
        return ActionShape(href=f"{self._root}/{place}", header=self._header, expires_at=self._expires_at)


async def verify(edge: Edge, request: Request, access: GitAccess, check: Check) -> Response:
    """Tell whether the project has an LFS object that a client has uploaded."""
    wanted = await parameters(request, Wanted, limit_bytes=edge.settings.body_limit_bytes)
    stored = await _find(edge, access.project, wanted.oid)
    if stored.size != wanted.size:
        raise GitRefusedError(422, f"The object has {stored.size} bytes, not {wanted.size}; upload it again")
    return answer_lfs(wanted)


async def download(edge: Edge, request: Request, access: GitAccess, check: Check, oid: str) -> Response:
    """Download an LFS object of the project, or its part in `Range`."""
    return answer_object(edge, request, await _find(edge, access.project, oid))


def answer_object(edge: Edge, request: Request, stored: LfsObject) -> Response:
    content = Content(
        read=lambda start: edge.blobs.read(stored.blob, start),
        size=stored.size,
        tag=f'"{stored.oid}"',
        media_type=_MEDIA,
        headers={"X-Content-Type-Options": "nosniff", "Cache-Control": "private, no-cache"},
    )
    return answer_content(request.headers, content)


async def _find(edge: Edge, project: Project, oid: str) -> LfsObject:
    """The object of the project. Raises GitRefusedError: 422 if `oid` is no oid, 404 if it or its file is missing."""
    _check_oid(oid)
    stored = await find_object(edge, project, oid)
    if stored is None:
        raise GitRefusedError(404, f"The project has no LFS object {oid}")
    return stored


async def find_object(edge: Edge, project: Project, oid: str) -> LfsObject | None:
    """Return the object of the project; None if it or its file is missing."""
    stored = (await edge.store.lfs.find_objects(project.id, [oid])).get(oid)
    return None if stored is None or await edge.blobs.size(stored.blob) is None else stored


def _check_oid(oid: str) -> None:
    if not is_oid(oid):
        raise GitRefusedError(422, "The oid is not a SHA-256 in lower-case hex digits")


async def upload(edge: Edge, request: Request, access: GitAccess, check: Check, oid: str, size_text: str) -> Response:
    """Upload an LFS object to the project."""
    _check_oid(oid)
    size, settings = int(size_text), edge.settings
    if size > settings.lfs_limit_bytes:
        raise too_large(f"the cell's limit for an LFS object is {settings.lfs_limit_bytes} bytes (lfs_limit_bytes)")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length[:18]) != size:
        raise GitRefusedError(422, f"The body has {length[:18]} bytes, but the address says {size}")
    # Each upload has its own key, so that a refused one does not touch the stored one.
    blob = lfs_key(access.project.id, oid, secrets.token_hex(8))
    try:
        received, sha256 = await edge.blobs.put(blob, Body(request.receive).pieces(), limit_bytes=size)
    except TooLargeError:
        raise GitRefusedError(422, f"The body has more than {size} bytes, which the address says") from None
    try:
        if received != size:
            raise GitRefusedError(422, f"The body has {received} bytes, but the address says {size}")
        if sha256 != oid:
            raise GitRefusedError(422, f"The SHA-256 of the body is {sha256}, not {oid}")
        # Again after the upload, which may take long: the project may have been deleted.
        project = (await check(is_push=True)).project
        reach("cell.lfs_object_received")
    except BaseException:
        await edge.blobs.remove(blob)
        raise
    await _store(edge, LfsObject(project_id=project.id, oid=oid, size=size, blob=blob, created_at=edge.clock.now()))
    reach("cell.lfs_object_stored")
    return Response(status_code=200)


async def _store(edge: Edge, received: LfsObject) -> None:
    # If this fails otherwise the row may still have been written, so the blob stays.
    try:
        stored = await edge.store.lfs.add_object(received, edge.settings.lfs_project_limit_bytes)
    except QuotaExceededError:
        await edge.blobs.remove(received.blob)
        raise
    if stored.blob != received.blob:
        await edge.blobs.remove(received.blob)
