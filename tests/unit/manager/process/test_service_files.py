"""Service files are well-formed, and none of them stops the agent together with the manager."""

import configparser
import plistlib
import shutil
import subprocess
from pathlib import Path

import pytest

from remuda.manager.process.service_files import ServicePaths, launchd, systemd, windows

PACKAGING = Path(__file__).parents[4] / "packaging"
PATHS = ServicePaths(program="/opt/my tools/remuda", config="/etc/100%.toml", data="/srv/data", user="ci")


def parse_unit(text: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read_string(text)
    return parser


def test_a_unit_signals_only_the_manager_and_has_a_long_stop_timeout() -> None:
    service = parse_unit(systemd(PATHS))["Service"]
    assert (service["KillMode"], service["KillSignal"], service["TimeoutStopSec"]) == ("process", "SIGQUIT", "7200")
    assert (service["User"], service["OOMPolicy"]) == ("ci", "continue")
    assert service["ExecStart"] == ('"/opt/my tools/remuda" manager run --config /etc/100%%.toml --data /srv/data')
    # These would apply to jobs, too.
    assert not {"NoNewPrivileges", "ProtectSystem", "PrivateTmp", "ProtectClock", "PrivateDevices"} & set(service)


def test_a_manager_that_was_drained_or_stopped_stays_down() -> None:
    """Then `manager run` ends with 0. All other ends are failures, after which it is started again."""
    assert parse_unit(systemd(PATHS))["Service"]["Restart"] == "on-failure"
    assert plistlib.loads(launchd(PATHS).encode())["KeepAlive"] == {"SuccessfulExit": False}
    lines = windows(PATHS).splitlines()
    default, success = (lines.index(f"& nssm set $service AppExit {end}") for end in ("Default Restart", "0 Exit"))
    assert default < success


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    file = tmp_path / "remuda-manager.service"
    file.write_text(systemd(ServicePaths(program="/bin/true")))
    result = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
    assert "remuda-manager.service" not in result.stderr, result.stderr


def test_a_property_list_leaves_the_process_group_alone() -> None:
    properties = plistlib.loads(launchd(PATHS).encode())
    assert properties["AbandonProcessGroup"] is True
    assert properties["UserName"] == "ci"
    assert properties["ProgramArguments"] == list(PATHS.arguments)


def test_a_windows_service_leaves_child_processes_alone() -> None:
    text = windows(ServicePaths(program=r"C:\Program Files\remuda.exe", config=r"C:\my files\c.toml", data=r"C:\data"))
    assert "AppKillProcessTree 0" in text
    assert r"""'C:\Program Files\remuda.exe' 'manager run --config "C:\my files\c.toml" --data C:\data'""" in text


def test_the_files_of_the_repository_are_current() -> None:
    assert (PACKAGING / "systemd/remuda-manager.service").read_text() == systemd(ServicePaths())
    assert (PACKAGING / "launchd/org.remuda.manager.plist").read_text() == launchd(ServicePaths())
    paths = ServicePaths(
        program=r"C:\Program Files\Remuda\remuda.exe",
        config=r"C:\ProgramData\Remuda\config.toml",
        data=r"C:\ProgramData\Remuda\data",
    )
    assert (PACKAGING / "windows/remuda-manager.ps1").read_text() == windows(paths)
