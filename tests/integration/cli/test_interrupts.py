"""An interrupted `remuda run` ends soon with exit code 130, and leaves no processes or temporary files."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from remuda.testing.waiting import wait_until

MakePipeline = Callable[[str], Path]


@pytest.fixture
def slow(world: Any, pipeline: MakePipeline) -> Path:
    return pipeline(
        "a:\n"
        f"  script: [touch {world.folder}/begun, sleep 600]\n"
        f"  after_script: [touch {world.folder}/after]\n"
        "b:\n  script: [sleep 601]\n"
        "c:\n  stage: deploy\n  script: [sleep 602]\n"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_cancels_the_pipeline(world: Any, slow: Path, finish: Any, number: signal.Signals) -> None:
    process = world.start("run", slow)
    wait_until((world.folder / "begun").exists, "the job runs")
    process.send_signal(number)
    result = finish(process)
    assert result.code == 130, result.err
    assert "canceling the pipeline" in result.out
    assert "pipeline canceled" in result.out
    assert (world.folder / "after").exists()
    assert world.is_empty()


def test_a_second_interrupt_leaves_at_once(world: Any, pipeline: MakePipeline, finish: Any) -> None:
    stubborn = pipeline(
        f"a:\n  script: [touch {world.folder}/begun, sleep 600]\n"
        f"  after_script: [touch {world.folder}/after, sleep 600]\n"
    )
    process = world.start("run", stubborn)
    wait_until((world.folder / "begun").exists, "the job runs")
    process.send_signal(signal.SIGINT)
    wait_until((world.folder / "after").exists, "after_script runs")
    process.send_signal(signal.SIGINT)
    assert finish(process, 15).code == 130
    assert world.is_empty()


@pytest.mark.parametrize("after", ["cell", "manager", "cell/repos/*"])
def test_an_interrupt_before_the_pipeline_stops_at_once(world: Any, slow: Path, finish: Any, after: str) -> None:
    process = world.start("run", slow)
    wait_until(lambda: list(world.temporary.glob(f"*/remuda-run-*/{after}")), f"{after} exists")
    process.send_signal(signal.SIGINT)
    assert finish(process).code == 130
    assert world.is_empty()


def test_json_output_reports_the_interrupt(world: Any, slow: Path, finish: Any) -> None:
    process = world.start("run", slow, "--output", "json")
    wait_until((world.folder / "begun").exists, "the job runs")
    process.send_signal(signal.SIGINT)
    result = finish(process)
    assert result.code == 130
    assert '"interrupted": true' in result.out


def test_a_closed_terminal_ends_the_run(world: Any, slow: Path) -> None:
    master, terminal = pty.openpty()
    take_over = (
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", take_over, sys.executable, "-m", "remuda", "run", str(slow)],
        env=world.environment(TERM="xterm"),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    world.started.append(process)
    os.close(terminal)
    os.set_blocking(master, False)
    output = b""

    def has_begun() -> bool:
        nonlocal output
        with suppress(BlockingIOError):
            output += os.read(master, 65536)
        return (world.folder / "begun").exists() and b"script" in output

    wait_until(has_begun, "the job runs and is drawn")
    os.close(master)
    assert process.wait(40) == 130
    wait_until(world.is_empty, "no processes or files are left")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_while_the_file_is_read_leaves_nothing(world: Any, finish: Any, number: signal.Signals) -> None:
    os.mkfifo(world.folder / "ci.yml")
    process = world.start("run", world.folder, "--file", world.folder / "ci.yml")
    wait_until(lambda: list(world.temporary.iterdir()), "the agent starts")
    process.send_signal(number)
    assert finish(process).code == 130
    assert world.is_empty()


def test_a_watching_run_ends_with_its_terminal(world: Any, pipeline: MakePipeline, finish: Any) -> None:
    process = world.start("run", pipeline(f"a:\n  script: [touch {world.folder}/begun]\n"), "--watch")
    wait_until((world.folder / "begun").exists, "the job runs")
    wait_until(lambda: not list(world.temporary.iterdir()), "the run is over")
    process.send_signal(signal.SIGHUP)
    finish(process, 15)
    # A `git` process that looks for changed files may still run; it ends by itself.
    wait_until(world.is_empty, "no processes or files are left")


@pytest.mark.parametrize("after", ["cell", "manager", "cell/repos/*"])
def test_an_interrupt_at_the_start_of_a_rerun_ends_watching(
    world: Any, pipeline: MakePipeline, finish: Any, after: str
) -> None:
    folder = pipeline(f"a:\n  script: [touch {world.folder}/begun]\n")
    process = world.start("run", folder, "--watch")
    wait_until((world.folder / "begun").exists, "the job runs")
    wait_until(lambda: not list(world.temporary.iterdir()), "the run is over")
    (folder / "changed.txt").write_text("a change")
    wait_until(lambda: list(world.temporary.glob(f"*/remuda-run-*/{after}")), f"{after} exists")
    process.send_signal(signal.SIGINT)
    assert finish(process).code == 130
    wait_until(world.is_empty, "no processes or files are left")


def test_a_run_ends_when_its_cell_is_killed(world: Any, slow: Path, finish: Any) -> None:
    process = world.start("run", slow)
    wait_until((world.folder / "begun").exists, "the job runs")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    # The cell is forked, so it has the same command line as the run; the agent has another.
    run_command_line = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    (cell,) = [int(pid) for pid in children if Path(f"/proc/{pid}/cmdline").read_bytes() == run_command_line]
    os.kill(cell, signal.SIGKILL)
    result = finish(process)
    assert result.code == 1
    assert "the cell has ended" in result.err
    assert world.is_empty()


def test_a_killed_run_leaves_an_agent_that_ends_by_itself(world: Any, pipeline: MakePipeline) -> None:
    folder = pipeline(f"a:\n  script: [touch {world.folder}/begun, sleep 1]\n")
    process = world.start("run", folder)
    wait_until((world.folder / "begun").exists, "the job runs")
    process.kill()
    wait_until(lambda: not world.processes(), "no process is left", 40)
