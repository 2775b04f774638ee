import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

from remuda.cell.operations.service_files import UNITS, CellPaths
from remuda.cli.main import call

PACKAGING = Path(__file__).parents[4] / "packaging/systemd"


@pytest.mark.parametrize("name", UNITS)
def test_packaged_files_are_up_to_date(name: str) -> None:
    assert (PACKAGING / name).read_text() == UNITS[name](CellPaths())


@pytest.mark.parametrize("name", UNITS)
def test_the_command_prints_each_unit(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["cell", "service", name, "--user", "ci", "--config", "/srv/ci.toml", "--backups", "/srv/backups"]) == 0
    unit = configparser.RawConfigParser(strict=False, delimiters=("=",))
    unit.optionxform = str  # type: ignore[assignment]
    unit.read_string(capsys.readouterr().out)
    if name.endswith(".service"):
        assert unit["Service"]["User"] == "ci"
        assert unit["Service"]["ExecStart"].endswith("--config /srv/ci.toml")


@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith(".service")])
def test_files_that_the_unit_cannot_read_are_named(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["cell", "service", name, "--config", "/home/me/cell.toml"]) == 0
    printed = capsys.readouterr()
    assert "ProtectHome=yes" in printed.out
    assert "the unit cannot read /home/me/cell.toml" in printed.err


def test_a_program_below_a_home_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "remuda"
    program.touch(mode=0o755)
    link = tmp_path / "bin" / "remuda"
    link.parent.mkdir()
    link.symlink_to(program)
    monkeypatch.setattr("sys.argv", [str(link)])
    monkeypatch.setattr("remuda.cell.operations.service_files.HIDDEN_FOLDERS", (str(tmp_path.parent),))
    assert call(["cell", "service"]) == 0
    assert f"the unit cannot read {link}" in capsys.readouterr().err
    assert call(["cell", "service", "remuda-cell-backup.timer"]) == 0
    assert capsys.readouterr().err == ""
    # A link in a readable folder to a program that pipx has installed for one user.
    monkeypatch.setattr("remuda.cell.operations.service_files.HIDDEN_FOLDERS", (str(program),))
    assert call(["cell", "service"]) == 0
    assert f"the unit cannot read {link}" in capsys.readouterr().err
    monkeypatch.setattr("remuda.cell.operations.service_files.HIDDEN_FOLDERS", ("/nowhere",))
    assert call(["cell", "service"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    paths = CellPaths(program="/bin/true", user="root")
    for name, unit in UNITS.items():
        (tmp_path / name).write_text(unit(paths))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in UNITS)],
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "remuda" in line]
    assert complaints == []
