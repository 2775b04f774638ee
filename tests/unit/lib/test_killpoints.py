import os
import signal
import subprocess
import sys
from pathlib import Path

from remuda.lib.killpoints import POINTS, reach

SCRIPT = "from remuda.lib.killpoints import reach; reach('cell.leased'); reach('cell.finished'); print('alive')"


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=30)


def test_without_the_variable_no_point_kills() -> None:
    for name in POINTS:
        reach(name)


def test_a_process_is_killed_at_its_point_once(tmp_path: Path) -> None:
    variables = {"REMUDA_KILL_POINT": "cell.finished", "REMUDA_KILL_MARK": str(tmp_path / "mark")}
    assert run(**variables).returncode == -signal.SIGKILL
    assert run(**variables).stdout == "alive\n"


def test_an_unknown_point_is_an_error() -> None:
    completed = run(REMUDA_KILL_POINT="cell.lunch")
    assert completed.returncode != 0
    assert "unknown kill point 'cell.lunch'" in completed.stderr
