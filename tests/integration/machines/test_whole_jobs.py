"""Whole jobs on machines behind SSH: from a pipeline file through a cell and a manager to another machine and back."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import ServedCell
from tests.support.machines.machines import LAB_ADDRESS, Machine, Machines
from tests.support.runners.manager_bench import ManagerBench
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine, busybox_files

from remuda.testing.waiting import wait_until

pytestmark = pytest.mark.skipif(
    bool(Machines.missing() or DockerEngine.missing()), reason=Machines.missing() or DockerEngine.missing() or "can be"
)

PIPELINE = """
build:
  stage: build
  cache: {key: k, paths: [kept]}
  script:
    - cat file.txt; hostname
    - mkdir -p kept out; echo made > out/made
  artifacts: {paths: [out]}
use:
  stage: test
  script: [cat out/made, hostname]
fails:
  stage: test
  script: [exit 3]
  allow_failure: true
"""
BOXED = f"""
boxed:
  image: {BUSYBOX}
  services:
    - name: {BUSYBOX}
      alias: web
      entrypoint: [sh, -c]
      command: ['while :; do nc -l -p 8000 -e echo hello; done']
      variables: {{HEALTHCHECK_TCP_PORT: "8000"}}
  script:
    - cat file.txt; test ! -e /etc/debian_version
    - mkdir out; nc web 8000 | tee out/answer
  artifacts: {{paths: [out]}}
"""


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """Two machines, the second of which may have an engine; this thread is in their network."""
    with Machines(2, shared=tmp_path, docker=(2,)) as lab, lab.entered():
        yield lab


@pytest.fixture
def cell(machines: Machines, tmp_path: Path) -> Iterator[ServedCell]:
    """Where the machines can reach it."""
    with ServedCell(tmp_path / "cell", host=LAB_ADDRESS) as served:
        yield served


async def run(
    cell: ServedCell,
    folder: Path,
    executor: str,
    runner: str,
    pipeline: str,
    meanwhile: Callable[[], None] = lambda: None,
    *,
    agent_lost_seconds: float = 900.0,
) -> dict[str, dict[str, Any]]:
    """Run a pipeline with a manager that has one runner; the jobs by name."""
    bench = ManagerBench(folder, cell)
    bench.write_config(concurrent=3, executor=executor, extra=runner)
    cell.new_project("app", pipeline, **{"file.txt": "text\n"})
    async with bench.manager(agent_lost_seconds=agent_lost_seconds):
        await asyncio.to_thread(meanwhile)
        return await cell.ended_jobs()


def entry(machines: Machines, machine: Machine) -> str:
    return (
        f'[[runners.remuda.machines]]\nname = "{machine.name}"\nhost = "{machine.address}"\n'
        f'identity_file = "{machines.key}"\nhost_key = "{machine.host_key}"\n'
    )


async def test_a_runner_of_one_machine(machines: Machines, cell: ServedCell, tmp_path: Path) -> None:
    machine = machines.machines[0]
    runner = (
        f'[runners.ssh]\nhost = "{machine.address}"\nuser = "root"\n'
        f'identity_file = "{machines.key}"\nknown_hosts_file = "{machines.known_hosts()}"\n'
        f'[runners.remuda]\nbefore_job = "echo $REMUDA_JOB >>/root/before"\n'
    )
    jobs = await run(cell, tmp_path, "ssh", runner, PIPELINE)
    assert {name: job["status"] for name, job in jobs.items()} == {
        "build": "success",
        "use": "success",
        "fails": "failed",
    }
    assert "Checking out" in jobs["build"]["log"]
    assert "text" in jobs["build"]["log"]
    assert "made" in jobs["use"]["log"]
    assert all("m1\n" in jobs[name]["log"] for name in ("build", "use"))
    assert sorted(machine.run("cat /root/before").stdout.split()) == sorted(str(job["id"]) for job in jobs.values())
    assert machine.run("find /var/lib/remuda-machine/builds -name '*.tmp' -o -path '*/agent/jobs/*'").stdout == ""


async def test_containers_of_a_machine_in_a_list(machines: Machines, cell: ServedCell, tmp_path: Path) -> None:
    """The engine is the machine's own, by the path that it has there."""
    machine = machines.machines[1]
    (tmp_path / "image.tar").write_bytes(busybox_files())
    machine.run("setsid dockerd --shutdown-timeout 1 >/root/dockerd.log 2>&1 </dev/null &")
    machine.run("until docker info >/dev/null 2>&1; do sleep 0.1; done")
    machine.run(f"docker import {tmp_path}/image.tar {BUSYBOX}")
    runner = f'[runners.docker]\npull_policy = "never"\n{entry(machines, machine)}'
    jobs = await run(cell, tmp_path, "docker-autoscaler", runner, BOXED)
    assert jobs["boxed"]["status"] == "success", jobs["boxed"]["log"]
    assert "hello" in jobs["boxed"]["log"]
    assert machine.run("docker ps -aq").stdout == ""


async def test_a_machine_that_starts_anew_has_lost_its_jobs_and_gets_others(
    machines: Machines, cell: ServedCell, tmp_path: Path
) -> None:
    machine = machines.machines[0]

    def restart() -> None:
        wait_until((tmp_path / "m1").exists, "the job runs")
        machine.kill()
        machine.start()

    pipeline = f"long: {{stage: build, script: [touch {tmp_path}/m1, sleep 600], allow_failure: true}}\n"
    pipeline += "next: {stage: test, script: [hostname]}\n"
    jobs = await run(cell, tmp_path, "instance", entry(machines, machine), pipeline, restart)
    assert (jobs["long"]["status"], jobs["long"]["failure_reason"]) == ("failed", "runner_system_failure")
    assert "m1\n" in jobs["next"]["log"]


LOST = """
lost:
  retry: {max: 1, when: [runner_system_failure]}
  script:
    - if mkdir FOLDER/first; then hostname >FOLDER/first/name; sleep 600; fi
    - echo again on $(hostname)
other:
  script:
    - touch FOLDER/other; while [ ! -e FOLDER/go ]; do sleep 0.1; done
    - echo still on $(hostname)
"""


@pytest.mark.long
async def test_a_machine_that_never_comes_back_takes_its_jobs_along_and_no_others(
    machines: Machines, cell: ServedCell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.manager.environments.ssh.CONNECT_SECONDS", 1.0)
    lost: dict[str, Any] = {}
    said = tmp_path / "first/name"

    def break_one() -> None:
        wait_until(lambda: said.exists() and bool(said.read_text()) and (tmp_path / "other").exists(), "both jobs run")
        machines.named(said.read_text().strip()).kill()

        def is_over() -> bool:
            jobs = cell.api("GET", "/projects/1/pipelines/1/jobs?include_retried=true").json()
            lost.update(min((job for job in jobs if job["name"] == "lost"), key=lambda job: int(job["id"])))
            return bool(lost["status"] == "failed")

        wait_until(is_over, "the job is given up", seconds=60)
        (tmp_path / "go").touch()

    runner = entry(machines, machines.machines[0]) + entry(machines, machines.machines[1])
    pipeline = LOST.replace("FOLDER", str(tmp_path))
    jobs = await run(cell, tmp_path, "instance", runner, pipeline, break_one, agent_lost_seconds=3.0)
    assert lost["failure_reason"] == "runner_system_failure"
    log = cell.api("GET", f"/projects/1/jobs/{lost['id']}/trace").body.decode()
    gone, *_ = said.read_text().split()
    [there] = [one.name for one in machines.machines if one.name != gone]
    assert f"{machines.named(gone).address}:22 cannot be reached" in log
    assert f"still on {there}\n" in jobs["other"]["log"]
    assert f"again on {there}\n" in jobs["lost"]["log"]
    assert {job["status"] for job in jobs.values()} == {"success"}
