import gzip
from pathlib import Path

import pytest

from remuda.stdsteps.artifacts_upload.step import build, is_due
from remuda.stdsteps.common.errors import StepError


@pytest.mark.parametrize(
    ("when", "status", "expected"),
    [
        ("always", "failed", True),
        ("on_success", "running", True),
        ("on_success", "failed", False),
        ("on_failure", "canceled", True),
        ("on_failure", "success", False),
    ],
)
def test_upload_depends_on_the_status_of_the_job(when: str, status: str, expected: bool) -> None:
    assert is_due(when, status) == expected


def test_gzip_and_raw_formats(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "a.txt").write_text("first")
    (tmp_path / "out/b.txt").write_text("second")
    build(tmp_path / "x.gz", tmp_path, ["out/b.txt", "a.txt"], "gzip")
    packed = (tmp_path / "x.gz").read_bytes()
    assert gzip.decompress(packed) == b"firstsecond"
    assert packed.count(b"\x1f\x8b\x08\x08") == 2, "each file is a gzip member with its name"
    build(tmp_path / "x.raw", tmp_path, ["a.txt"], "raw")
    assert (tmp_path / "x.raw").read_text() == "first"
    with pytest.raises(StepError, match="exactly one file, not 2"):
        build(tmp_path / "x.raw", tmp_path, ["a.txt", "out/b.txt"], "raw")
