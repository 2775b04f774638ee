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


def test_nothing_happens_unless_asked() -> None:
    for name in POINTS:
        reach(name)


def test_a_process_dies_at_its_point_once(tmp_path: Path) -> None:
    asked = {"REMUDA_KILL_POINT": "cell.finished", "REMUDA_KILL_MARK": str(tmp_path / "mark")}
    assert run(**asked).returncode == -signal.SIGKILL
    assert run(**asked).stdout == "alive\n"


def test_an_unknown_point_is_a_mistake() -> None:
    done = run(REMUDA_KILL_POINT="cell.lunch")
    assert done.returncode != 0
    assert "unknown kill point 'cell.lunch'" in done.stderr
