import os
from pathlib import Path

import pytest

from remuda.cell.operations.backup_files import pack
from remuda.lib import files


def test_an_archive_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = tmp_path / "to.tar"
    (tmp_path / "beside" / "backup").mkdir(parents=True)
    synced = []

    def note(file: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{file}"), to.exists()))

    monkeypatch.setattr(files._Sync, "is_enabled", True)
    monkeypatch.setattr(os, "fsync", note)
    pack(tmp_path / "beside" / "backup", to)
    assert synced == [(str(tmp_path / "beside" / "packed"), False), (str(tmp_path), True)]
