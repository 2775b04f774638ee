"""Service files: they are well-formed, and none of them ends the agent with the manager."""

import configparser
import plistlib
import shutil
import subprocess
from pathlib import Path

import pytest

from remuda.manager.process.service_files import ServicePaths, launchd, systemd, windows

PACKAGING = Path(__file__).parents[4] / "packaging"
PATHS = ServicePaths(program="/opt/my tools/remuda", config="/etc/100%.toml", data="/srv/data", user="ci")


def unit(text: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read_string(text)
    return parser


def test_a_unit_signals_the_manager_alone_and_gives_it_time() -> None:
    service = unit(systemd(PATHS))["Service"]
    assert (service["KillMode"], service["KillSignal"], service["TimeoutStopSec"]) == ("process", "SIGQUIT", "7200")
    assert (service["User"], service["Restart"], service["OOMPolicy"]) == ("ci", "always", "continue")
    assert service["ExecStart"] == ('"/opt/my tools/remuda" manager run --config /etc/100%%.toml --data /srv/data')
    # These would hold for jobs, too.
    assert not {"NoNewPrivileges", "ProtectSystem", "PrivateTmp", "ProtectClock", "PrivateDevices"} & set(service)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    file = tmp_path / "remuda-manager.service"
    file.write_text(systemd(ServicePaths(program="/bin/true")))
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
    assert "remuda-manager.service" not in done.stderr, done.stderr


def test_a_property_list_leaves_the_process_group_alone() -> None:
    made = plistlib.loads(launchd(PATHS).encode())
    assert made["AbandonProcessGroup"] is True
    assert made["KeepAlive"] is True
    assert made["UserName"] == "ci"
    assert made["ProgramArguments"] == list(PATHS.arguments)


def test_a_windows_service_leaves_child_processes_alone() -> None:
    text = windows(ServicePaths(program=r"C:\Program Files\remuda.exe", config=r"C:\my files\c.toml", data=r"C:\data"))
    assert "AppKillProcessTree 0" in text
    assert r"""'C:\Program Files\remuda.exe' 'manager run --config "C:\my files\c.toml" --data C:\data'""" in text


def test_the_files_of_the_repository_are_these() -> None:
    assert (PACKAGING / "systemd/remuda-manager.service").read_text() == systemd(ServicePaths())
    assert (PACKAGING / "launchd/org.remuda.manager.plist").read_text() == launchd(ServicePaths())
    usual = ServicePaths(
        program=r"C:\Program Files\Remuda\remuda.exe",
        config=r"C:\ProgramData\Remuda\config.toml",
        data=r"C:\ProgramData\Remuda\data",
    )
    assert (PACKAGING / "windows/remuda-manager.ps1").read_text() == windows(usual)
