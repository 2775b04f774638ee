"""The engine is killed in the middle: a clear failure, nothing that runs on, nothing left when it is back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine

from remuda.testing.waiting import wait_until

pytestmark = pytest.mark.long


def test_an_engine_that_dies_is_the_platforms_failure_and_leaves_nothing(
    own_engine: DockerEngine, new_job: Callable[..., Any]
) -> None:
    job = new_job(own_engine)
    started = job.step("service", image=BUSYBOX, pull_policy=["never"], command=["sleep", "1000"], alias=["db"])
    assert started.code == 0, started.text
    opened = job.open(network="job")
    process = job.begin(opened, "sh", "-c", "echo begun; sleep 1000")
    assert process.stdout.readline() == "begun\n"
    own_engine.kill()
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 75
    assert text.startswith("ERROR: the container engine at unix:///")
    assert "The command was running at that time" in text
    assert job.failure["fault"] == "platform"
    assert len(own_engine.living()) == 3  # two containers and the command do not need the engine to run on
    closed = job.close()
    assert closed.code == 0, closed.text
    assert "The processes of 1 container(s) of this job were killed without the engine" in closed.text
    wait_until(lambda: len(own_engine.living()) == 1)
    stopped = job.step("service_stop")
    assert stopped.code == 0, stopped.text
    wait_until(lambda: own_engine.living() == [])
    own_engine.start()
    wait_until(lambda: [one["Labels"]["remuda.role"] for one in own_engine.containers()] == ["service"])
    # What the engine still knows of the service is found by the next job.
    for path in (job.exchange / name.name for name in Path(job.exchange).iterdir()):
        path.unlink()
    job.exchange.rmdir()
    following = new_job(own_engine, "2")
    assert "left behind" in following.open().text
    assert following.close().code == 0
    assert (own_engine.containers(), own_engine.networks()) == ([], [])


def test_a_container_that_hides_its_mark_is_ended_without_the_engine(
    own_engine: DockerEngine, new_job: Callable[..., Any]
) -> None:
    """Its first process has another environment, and the path of the working directory is another one inside."""
    job = new_job(own_engine)
    hide = f'cd / && mv {"/".join(job.work.parts[:3])[1:]} /moved && exec env -i "$@"'
    opened = job.open(entrypoint=["sh", "-c", hide, "sh"])
    assert opened.code == 0, opened.text
    own_engine.kill()
    closed = job.close()
    assert "The processes of 1 container(s) of this job were killed without the engine" in closed.text
    wait_until(lambda: own_engine.living() == [])


def test_a_paused_container_is_ended_without_the_engine(own_engine: DockerEngine, new_job: Callable[..., Any]) -> None:
    """That of a held job. With control groups of version 1 a process that is frozen does not die of a signal."""
    job = new_job(own_engine)
    assert job.open().code == 0
    assert job.step("container_pause").code == 0
    own_engine.kill()
    closed = job.close()
    assert "The processes of 1 container(s) of this job were killed without the engine" in closed.text
    wait_until(lambda: own_engine.living() == [])


def test_an_engine_that_comes_back_while_a_container_is_closed(
    own_engine: DockerEngine, new_job: Callable[..., Any]
) -> None:
    job = new_job(own_engine)
    assert job.open().code == 0
    own_engine.kill()
    own_engine.start()
    closed = job.close()
    assert closed.code == 0, closed.text
    assert own_engine.containers() == []


def test_without_the_rights_to_end_it_closing_says_so(own_engine: DockerEngine, new_job: Callable[..., Any]) -> None:
    job = new_job(own_engine)
    job.host = "tcp://127.0.0.1:1"
    closed = job.close()
    assert closed.code == 75
    assert "may still run" in closed.text
