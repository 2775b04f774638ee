"""`remuda cell backup --keep`: several backups in one folder."""

from pathlib import Path

import pytest
from tests.support.cells.served_cell import ServedCell

from remuda.cli.main import call
from remuda.lib.exits import BadInputError


def test_backups_of_a_running_cell_are_kept_and_can_be_restored(cell: ServedCell, tmp_path: Path) -> None:
    cell.new_project("app", "job: {script: [make]}")
    folder = tmp_path / "backups"
    options = ["--data", str(tmp_path / "cell"), "--keep", "1"]
    old = folder / "cell-20200101T000000Z.tar.gz"
    folder.mkdir()
    old.touch()
    assert call(["cell", "backup", str(folder), "--with-keys", *options]) == 0
    [backup] = folder.iterdir()
    assert backup != old
    assert call(["cell", "restore", str(backup), "--data", str(tmp_path / "restored")]) == 0
    with ServedCell(tmp_path / "restored") as restored:
        assert [project["path"] for project in restored.api("GET", "/projects").json()] == ["app"]


def test_a_new_backup_stays_after_the_clock_was_ahead(cell: ServedCell, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    ahead = folder / "cell-21000101T000000Z.tar.gz"
    folder.mkdir()
    ahead.touch()
    assert call(["cell", "backup", str(folder), "--data", str(tmp_path / "cell"), "--keep", "1"]) == 0
    [backup] = folder.iterdir()
    assert backup != ahead


def test_a_failing_backup_removes_none(tmp_path: Path) -> None:
    old = tmp_path / "cell-20200101T000000Z.tar.gz"
    old.touch()
    with pytest.raises(Exception, match="cell"):
        call(["cell", "backup", str(tmp_path), "--keep", "1", "--data", str(tmp_path / "nothing")])
    assert old.exists()


def test_keeping_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="--keep 0: must be at least 1"):
        call(["cell", "backup", str(tmp_path), "--keep", "0"])
