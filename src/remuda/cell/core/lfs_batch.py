"""Decides for each object of a Git LFS batch request whether the client must transfer it, or why it cannot."""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from remuda.cell.values.lfs import LfsObject

_OID = re.compile(r"[0-9a-f]{64}", re.ASCII)
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:[^\n]+\n)*?oid sha256:([0-9a-f]{64})\nsize [0-9]+\n"
)
_MAX_POINTER = 1024


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """An object that a client wants to download or upload."""

    oid: str
    size: int


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for uploads to a project."""

    object_bytes: int
    quota_bytes: int
    """Most bytes of all objects of the project; 0: no limit."""
    used_bytes: int
    """How many bytes the objects of the project have now."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one object. If it has neither `transfers` nor `code`, the project has the object that the client
    wanted to upload, and there is nothing to do."""

    oid: str
    size: int
    transfers: bool = False
    """The client may download or must upload it."""
    code: int = 0
    """HTTP status of the error; 0 if there is none."""
    message: str = ""


def is_oid(text: str) -> bool:
    """True for the id of an LFS object: a SHA-256 in lower-case hex digits."""
    return _OID.fullmatch(text) is not None


def read_pointer(content: bytes) -> str | None:
    """Return the oid if this content of a file in the repository is a pointer to an LFS object, otherwise None."""
    match = _POINTER.fullmatch(content) if len(content) < _MAX_POINTER else None
    return match[1].decode() if match else None


def answer_batch(
    operation: Literal["download", "upload"],
    wanted: Sequence[Wanted],
    stored: Mapping[str, LfsObject],
    limits: Limits,
) -> list[Answer]:
    """Return an answer for each wanted object. `stored`: those that the project has, by oid. An object is counted for
    the quota if its upload is allowed; a second mention of it is not counted again."""
    answers = []
    used, counted = limits.used_bytes, set[str]()
    for item in wanted:
        has = stored.get(item.oid)
        code, message, transfers = 0, "", False
        if not is_oid(item.oid) or item.size < 0:
            code, message = 422, "not a SHA-256 in lower-case hex digits and a size in bytes"
        elif has is not None and has.size != item.size:
            code, message = 422, f"the object with this oid has {has.size} bytes, not {item.size}"
        elif operation == "download":
            transfers = has is not None
            if has is None:
                code, message = 404, "the project does not have this object; push it with `git lfs push --all`"
        elif has is None:
            added = 0 if item.oid in counted else item.size
            code, message = _check_upload(item, used + added, limits)
            if not code:
                transfers, used = True, used + added
                counted.add(item.oid)
        answers.append(Answer(oid=item.oid, size=item.size, transfers=transfers, code=code, message=message))
    return answers


def _check_upload(item: Wanted, used: int, limits: Limits) -> tuple[int, str]:
    if item.size > limits.object_bytes:
        limit = f"the limit of the cell is {limits.object_bytes} bytes (lfs_limit_bytes)"
        return 422, f"the object has {item.size} bytes, and {limit}"
    if limits.quota_bytes and used > limits.quota_bytes:
        return 507, f"the quota of the project is {limits.quota_bytes} bytes for LFS objects (lfs_project_limit_bytes)"
    return 0, ""
