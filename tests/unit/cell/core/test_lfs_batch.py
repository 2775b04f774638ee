"""What a batch request of Git LFS gets for each object."""

from typing import Any

import pytest

from remuda.cell.core.lfs_batch import Answer, Limits, Wanted, answer_batch, is_oid, read_pointer
from remuda.cell.values.lfs import LfsObject
from remuda.model.job import ProjectId

A, B = "a" * 64, "b" * 64
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{A}\nsize 10\n".encode()
LIMITS = Limits(object_bytes=1000, quota_bytes=0, used_bytes=0)


def stored(oid: str = A, size: int = 10) -> dict[str, LfsObject]:
    return {oid: LfsObject(project_id=ProjectId(1), oid=oid, size=size, blob="x", created_at=0)}


def decide(operation: Any, *wanted: tuple[str, int], has: Any = None, limits: Limits = LIMITS) -> list[Answer]:
    return answer_batch(operation, [Wanted(oid=oid, size=size) for oid, size in wanted], has or {}, limits)


def test_download() -> None:
    present, absent, other_size = decide("download", (A, 10), (B, 10), (A, 11), has=stored())
    assert (present.transfers, present.code) == (True, 0)
    assert (absent.transfers, absent.code) == (False, 404)
    assert (other_size.transfers, other_size.code) == (False, 422)


def test_upload() -> None:
    present, absent, too_large, other_size = decide("upload", (A, 10), (B, 1000), (B, 1001), (A, 9), has=stored())
    assert (present.transfers, present.code) == (False, 0), "nothing to do"
    assert (absent.transfers, absent.code) == (True, 0)
    assert (too_large.code, too_large.message) == (
        422,
        "the object has 1001 bytes, and the limit of the cell is 1000 bytes (lfs_limit_bytes)",
    )
    assert other_size.code == 422


def test_quota_counts_all_new_objects_of_the_request_once() -> None:
    limits = Limits(object_bytes=1000, quota_bytes=100, used_bytes=50)
    answers = decide("upload", (A, 30), (A, 30), (B, 21), ("c" * 64, 20), limits=limits)
    assert [answer.code for answer in answers] == [0, 0, 507, 0]


@pytest.mark.parametrize(
    "oid", ["", "a" * 63, "a" * 65, "A" * 64, "../" + "a" * 61, "a" * 64 + "\n", "g" * 64, "a" * 31 + "/" + "a" * 32]
)
def test_an_oid_is_a_sha256_in_lower_case(oid: str) -> None:
    assert not is_oid(oid)
    assert [answer.code for answer in decide("upload", (oid, 1))] == [422]
    assert [answer.code for answer in decide("download", (oid, 1))] == [422]


def test_a_negative_size_is_invalid() -> None:
    assert [answer.code for answer in decide("upload", (A, -1))] == [422]


@pytest.mark.parametrize(
    ("content", "oid"),
    [
        (POINTER, "a" * 64),
        (POINTER.replace(b"oid", b"ext-0-foo sha256:" + b"b" * 64 + b"\noid"), "a" * 64),
        (POINTER + b"more\n", None),
        (POINTER.replace(b"a" * 64, b"a" * 63), None),
        (POINTER.replace(b"oid", b"ext-0-" + b"x" * 1024 + b" y\noid"), None),
        (b"", None),
    ],
)
def test_pointers(content: bytes, oid: str | None) -> None:
    assert read_pointer(content) == oid
