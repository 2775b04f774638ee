import io
import zipfile
from pathlib import Path

import pytest

from remuda.cli.artifacts import _extract, folder_name
from remuda.cli.exits import CommandError


@pytest.mark.parametrize(
    ("job", "folder"), [("build", "build"), ("test 1/4", "test 1_4"), ("..", "_.."), ("../../etc", "_.._.._etc")]
)
def test_no_jobs_name_leads_elsewhere(job: str, folder: str) -> None:
    assert folder_name(job) == folder


def test_files_keep_their_permissions_and_stay_below_the_folder(tmp_path: Path) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        program = zipfile.ZipInfo("bin/tool")
        program.external_attr = 0o100755 << 16
        packed.writestr(program, "#!/bin/sh\n")
        packed.writestr("../../outside", "x")
    _extract(archive, tmp_path / "a" / "b" / "job")
    assert (tmp_path / "a" / "b" / "job" / "bin" / "tool").stat().st_mode & 0o777 == 0o755
    assert not (tmp_path / "a" / "outside").exists()
    assert (tmp_path / "a" / "b" / "job" / "outside").exists()


def test_what_is_no_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no zip archive"):
        _extract(io.BytesIO(b"not a zip"), tmp_path / "job")
