import subprocess
from pathlib import Path

import pytest

from remuda_plugin_local.processes import ProcessId, end, read_process_id, start_ticks


@pytest.mark.parametrize("text", ["", "12", "a b", "12 x", "1 2 3"])
def test_an_invalid_pid_file_names_no_process(text: str) -> None:
    assert read_process_id(text) is None


def test_the_name_of_a_process_may_contain_any_character() -> None:
    assert start_ticks("7 (a) S 1 (b) R " + " ".join(str(number) for number in range(4, 53))) == 22


def test_a_process_that_reuses_the_pid_is_not_killed() -> None:
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    ticks = start_ticks(Path(f"/proc/{process.pid}/stat").read_text())
    assert end(ProcessId(pid=process.pid, start_ticks=ticks - 1))
    assert process.poll() is None
    assert end(ProcessId(pid=process.pid, start_ticks=ticks))
    assert process.wait() == -9
    assert end(ProcessId(pid=process.pid, start_ticks=ticks))
