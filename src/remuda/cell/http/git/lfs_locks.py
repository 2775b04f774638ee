"""Locks of files with Git LFS, for files that cannot be merged. git-lfs asks before a push (`verify`) and warns or
refuses; the cell itself refuses new commits with a file that somebody else has locked (`cell.git.push_hook`,
`projects.file_locks`). As in GitLab a lock is for all branches."""

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.errors import ConflictError
from remuda.cell.http.edge.bodies import is_number, parameters
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.git.git_access import GitAccess, GitRefusedError
from remuda.cell.http.git.lfs_answers import answer_lfs
from remuda.cell.http.git.lfs_objects import Check, Ref
from remuda.cell.values.lfs import LfsLock
from remuda.cell.values.people import Level
from remuda.lib.clock import rfc3339

MAX_PATH = 4096
PAGE = 100
MAX_PAGE = 1000


class OwnerShape(Shape, kw_only=True):
    name: str


class LockShape(Shape, kw_only=True):
    id: str
    path: str
    locked_at: str
    owner: OwnerShape


class LocksShape(Shape, kw_only=True):
    locks: list[LockShape]
    next_cursor: str | UnsetType = UNSET


class VerifiedShape(Shape, kw_only=True):
    ours: list[LockShape]
    theirs: list[LockShape]
    next_cursor: str | UnsetType = UNSET


class OneLockShape(Shape, kw_only=True):
    lock: LockShape
    message: str | UnsetType = UNSET


class NewLock(msgspec.Struct, kw_only=True):
    path: str
    ref: Ref | None = None


class LockPage(msgspec.Struct, kw_only=True):
    cursor: str = ""
    limit: int = PAGE
    ref: Ref | None = None


class Unlock(msgspec.Struct, kw_only=True):
    force: bool = False
    ref: Ref | None = None


async def list_locks(edge: Edge, request: Request, access: GitAccess, check: Check) -> Response:
    """List the file locks of the project."""
    query = request.query_params
    if path := query.get("path"):
        lock = await edge.store.lfs.find_lock(access.project.id, path)
        locks, cursor = [lock] if lock is not None and query.get("id", str(lock.id)) == str(lock.id) else [], ""
    elif number := query.get("id"):
        lock = await edge.store.lfs.load_lock(int(number)) if is_number(number) else None
        locks, cursor = [lock] if lock is not None and lock.project_id == access.project.id else [], ""
    else:
        limit = query.get("limit", "")
        locks, cursor = await _page(edge, access, query.get("cursor", ""), int(limit) if is_number(limit) else PAGE)
    return answer_lfs(LocksShape(locks=await _describe(edge, locks), next_cursor=cursor or UNSET))


async def create(edge: Edge, request: Request, access: GitAccess, check: Check) -> Response:
    """Lock a file of the project. 409 if it is locked."""
    new = await parameters(request, NewLock, limit_bytes=edge.settings.body_limit_bytes)
    _check_path(new.path)
    lock = LfsLock(
        id=0,
        project_id=access.project.id,
        path=new.path,
        user_id=_user_id(access),
        locked_at=edge.clock.now(),
    )
    try:
        added = await edge.store.lfs.add_lock(lock)
    except ConflictError as error:
        existing = await edge.store.lfs.find_lock(access.project.id, new.path)
        if existing is None:
            raise
        [view] = await _describe(edge, [existing])
        return answer_lfs(OneLockShape(lock=view, message=str(error)), 409)
    [view] = await _describe(edge, [added])
    return answer_lfs(OneLockShape(lock=view), 201)


async def verify(edge: Edge, request: Request, access: GitAccess, check: Check) -> Response:
    """List the file locks of the project, apart those of the caller and those of others."""
    wanted = await parameters(request, LockPage, limit_bytes=edge.settings.body_limit_bytes)
    locks, cursor = await _page(edge, access, wanted.cursor, wanted.limit)
    user_id = _user_id(access)
    return answer_lfs(
        VerifiedShape(
            ours=await _describe(edge, [lock for lock in locks if lock.user_id == user_id]),
            theirs=await _describe(edge, [lock for lock in locks if lock.user_id != user_id]),
            next_cursor=cursor or UNSET,
        )
    )


async def unlock(edge: Edge, request: Request, access: GitAccess, check: Check, number: str) -> Response:
    """Remove a file lock; with `force`, a maintainer removes that of somebody else."""
    wanted = await parameters(request, Unlock, limit_bytes=edge.settings.body_limit_bytes)
    lock = await edge.store.lfs.load_lock(int(number))
    if lock is None or lock.project_id != access.project.id:
        raise GitRefusedError(404, "There is no such lock")
    [view] = await _describe(edge, [lock])
    if lock.user_id != _user_id(access):
        if not wanted.force:
            raise GitRefusedError(403, f"{lock.path} is locked by {view.owner.name}; ask them, or unlock with --force")
        if access.level < Level.MAINTAINER:
            raise GitRefusedError(403, "Only maintainers may remove the lock of somebody else")
    if not await edge.store.lfs.remove_lock(lock.id):
        raise GitRefusedError(404, "There is no such lock")
    return answer_lfs(OneLockShape(lock=view))


def _user_id(access: GitAccess) -> int:
    if access.caller is None:
        raise GitRefusedError(403, "Only users can lock files")
    return access.caller.user.id


def _check_path(path: str) -> None:
    parts = path.split("/")
    if not 0 < len(path) <= MAX_PATH or not path.isprintable() or any(part in ("", ".", "..") for part in parts):
        raise GitRefusedError(422, f"path: must be the path of a file in the repository, up to {MAX_PATH} characters")


async def _page(edge: Edge, access: GitAccess, cursor: str, limit: int) -> tuple[list[LfsLock], str]:
    """A page of locks after `cursor`, the id of the last one of the page before, and the cursor of the next page."""
    if cursor and not is_number(cursor):
        raise GitRefusedError(422, "cursor: must be that of an answer")
    size = min(max(limit, 1), MAX_PAGE)
    locks = list(await edge.store.lfs.list_locks(access.project.id, after=int(cursor or 0), limit=size + 1))
    return locks[:size], str(locks[size - 1].id) if len(locks) > size else ""


async def _describe(edge: Edge, locks: list[LfsLock]) -> list[LockShape]:
    names: dict[int, str] = {}
    for user_id in {lock.user_id for lock in locks}:
        user = await edge.store.people.load_user(user_id)
        names[user_id] = user.name if user else "unknown"
    return [
        LockShape(
            id=str(lock.id),
            path=lock.path,
            locked_at=rfc3339(lock.locked_at),
            owner=OwnerShape(name=names[lock.user_id]),
        )
        for lock in locks
    ]
