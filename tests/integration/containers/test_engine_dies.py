"""Kills the engine during a job: the failure is the platform's, no process continues, and no container is left."""

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
    assert len(own_engine.container_pids()) == 3  # two containers and the command do not need the engine to run on
    closed = job.close()
    assert closed.code == 0, closed.text
    assert "The processes of 1 container(s) of this job were killed without the engine" in closed.text
    wait_until(lambda: len(own_engine.container_pids()) == 1)
    stopped = job.step("service_stop")
    assert stopped.code == 0, stopped.text
    wait_until(lambda: own_engine.container_pids() == [])
    own_engine.start()
    wait_until(lambda: [container["Labels"]["remuda.role"] for container in own_engine.containers()] == ["service"])
    # The next job removes the service that the engine still has.
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
    """The container's first process has another environment, and the working directory has another path inside."""
    job = new_job(own_engine)
    hide = f'cd / && mv {"/".join(job.work.parts[:3])[1:]} /moved && exec env -i "$@"'
    opened = job.open(entrypoint=["sh", "-c", hide, "sh"])
    assert opened.code == 0, opened.text
    own_engine.kill()
    closed = job.close()
    assert "The processes of 1 container(s) of this job were killed without the engine" in closed.text
    wait_until(lambda: own_engine.container_pids() == [])


def test_a_paused_container_is_ended_without_the_engine(own_engine: DockerEngine, new_job: Callable[..., Any]) -> None:
    """A job on hold has a paused container. With cgroups of version 1 a signal does not end a frozen process."""
    job = new_job(own_engine)
    assert job.open().code == 0
    assert job.step("container_pause").code == 0
    own_engine.kill()
    closed = job.close()
    assert "The processes of 1 container(s) of this job were killed without the engine" in closed.text
    wait_until(lambda: own_engine.container_pids() == [])


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


def test_closing_warns_when_it_can_neither_reach_the_engine_nor_kill(
    own_engine: DockerEngine, new_job: Callable[..., Any]
) -> None:
    job = new_job(own_engine)
    job.host = "tcp://127.0.0.1:1"
    closed = job.close()
    assert closed.code == 75
    assert "may still run" in closed.text
