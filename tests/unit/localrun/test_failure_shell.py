import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from remuda.localrun.containers import ContainerUse
from remuda.localrun.failure_shell import offer, script_text
from remuda.localrun.view import JobView, RunView
from remuda.manager.compile import kept_workdirs


def test_the_script_opens_a_shell_in_the_work_folder_with_the_variables(tmp_path: Path) -> None:
    place = tmp_path / "with space"
    place.mkdir()
    text = script_text(place, {"A": "it's $HOME\nand more", "SHELL": "/usr/bin/env"})
    result = subprocess.run(["/bin/sh", "-c", text], env={}, capture_output=True, text=True, check=True)
    assert "A=it's $HOME\nand more\n" in result.stdout
    assert f"PWD={place}\n" in result.stdout


def test_the_shell_is_not_offered_for_a_job_that_may_fail(
    a_job: Callable[..., JobView],
    a_run: Callable[..., RunView],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = a_run(a_job("lint", "failed", allow_failure=True), a_job("unit", "failed"), status="failed")
    for job in view.jobs:
        kept_workdirs.write(tmp_path, job.id, work_dir=str(tmp_path), variables=())
    offer(view, tmp_path, tmp_path, opens=False, is_kept=True)
    assert "a shell where unit failed" in capsys.readouterr().err


def test_the_shell_of_a_job_in_a_container_is_outside(
    a_job: Callable[..., JobView],
    a_run: Callable[..., RunView],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    use = ContainerUse(image="python:3.12", services=(), is_ignored=False)
    view = a_run(a_job("unit", "failed", containers=use), status="failed")
    kept_workdirs.write(tmp_path, view.jobs[0].id, work_dir=str(tmp_path), variables=())
    offer(view, tmp_path, tmp_path, opens=False, is_kept=True)
    expected = "a shell where unit (it ran in a container of python:3.12, the shell is outside of it) failed"
    assert expected in capsys.readouterr().err
