"""Stored values of Git LFS: the objects of a project, and locks of its files."""

from remuda.cell.values.stored import Value
from remuda.model.job import ProjectId


class LfsObject(Value, frozen=True, kw_only=True):
    """A large file that a project stores with Git LFS. The file is in the blob storage, under the key `blob`."""

    project_id: ProjectId
    oid: str
    """SHA-256 of the content, in lower-case hex digits."""
    size: int
    blob: str
    created_at: float


class LfsLock(Value, frozen=True, kw_only=True):
    """A user's lock of a file in a project: others should not push changes of this file."""

    id: int
    project_id: ProjectId
    path: str
    """Path of the file in the repository."""
    user_id: int
    locked_at: float
