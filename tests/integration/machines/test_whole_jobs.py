"""Jobs of a pipeline on machines behind SSH, with a cell and a manager; machines restart and disappear during jobs."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import ServedCell
from tests.support.machines.machines import LAB_ADDRESS, Machine, Machines
from tests.support.runners.manager_harness import ManagerHarness
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
    """Two machines; the second can run Docker. The test's thread joins their network namespace."""
    with Machines(2, shared=tmp_path, docker=(2,)) as lab, lab.enter_network():
        yield lab


@pytest.fixture
def cell(machines: Machines, tmp_path: Path) -> Iterator[ServedCell]:
    """A cell at an address that the machines can reach."""
    with ServedCell(tmp_path / "cell", host=LAB_ADDRESS) as served:
        yield served


async def run_pipeline(
    cell: ServedCell,
    folder: Path,
    executor: str,
    runner: str,
    pipeline: str,
    meanwhile: Callable[[], None] = lambda: None,
    *,
    agent_lost_seconds: float = 900.0,
) -> dict[str, dict[str, Any]]:
    """Run a pipeline with a manager that has one runner; return the jobs by name. Calls `meanwhile` when it runs."""
    harness = ManagerHarness(folder, cell)
    harness.write_config(concurrent=3, executor=executor, extra=runner)
    cell.new_project("app", pipeline, **{"file.txt": "text\n"})
    async with harness.manager(agent_lost_seconds=agent_lost_seconds):
        await asyncio.to_thread(meanwhile)
        return await cell.wait_for_jobs()


def machine_entry(machines: Machines, machine: Machine) -> str:
    return (
        f'[[runners.remuda.machines]]\nname = "{machine.name}"\nhost = "{machine.address}"\n'
        f'identity_file = "{machines.key}"\nhost_key = "{machine.host_key}"\n'
    )


async def test_jobs_on_a_single_machine(machines: Machines, cell: ServedCell, tmp_path: Path) -> None:
    machine = machines.machines[0]
    runner = (
        f'[runners.ssh]\nhost = "{machine.address}"\nuser = "root"\n'
        f'identity_file = "{machines.key}"\nknown_hosts_file = "{machines.known_hosts()}"\n'
        f'[runners.remuda]\nbefore_job = "echo $REMUDA_JOB >>/root/before"\n'
    )
    jobs = await run_pipeline(cell, tmp_path, "ssh", runner, PIPELINE)
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


async def test_containers_on_a_machine_of_a_list(machines: Machines, cell: ServedCell, tmp_path: Path) -> None:
    """The job uses the Docker engine of the machine, not one of the manager's host."""
    machine = machines.machines[1]
    (tmp_path / "image.tar").write_bytes(busybox_files())
    machine.run("setsid dockerd --shutdown-timeout 1 >/root/dockerd.log 2>&1 </dev/null &")
    machine.run("until docker info >/dev/null 2>&1; do sleep 0.1; done")
    machine.run(f"docker import {tmp_path}/image.tar {BUSYBOX}")
    runner = f'[runners.docker]\npull_policy = "never"\n{machine_entry(machines, machine)}'
    jobs = await run_pipeline(cell, tmp_path, "docker-autoscaler", runner, BOXED)
    assert jobs["boxed"]["status"] == "success", jobs["boxed"]["log"]
    assert "hello" in jobs["boxed"]["log"]
    assert machine.run("docker ps -aq").stdout == ""


async def test_restarted_machine_loses_job_and_gets_next(machines: Machines, cell: ServedCell, tmp_path: Path) -> None:
    machine = machines.machines[0]

    def restart() -> None:
        wait_until((tmp_path / "m1").exists, "the job runs")
        machine.kill()
        machine.start()

    pipeline = f"long: {{stage: build, script: [touch {tmp_path}/m1, sleep 600], allow_failure: true}}\n"
    pipeline += "next: {stage: test, script: [hostname]}\n"
    jobs = await run_pipeline(cell, tmp_path, "instance", machine_entry(machines, machine), pipeline, restart)
    assert (jobs["long"]["status"], jobs["long"]["failure_reason"]) == ("failed", "runner_system_failure")
    assert "m1\n" in jobs["next"]["log"]


TWO_LONG_JOBS = """
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
async def test_a_dead_machine_fails_only_its_own_job(
    machines: Machines, cell: ServedCell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.manager.environments.ssh.CONNECT_SECONDS", 1.0)
    lost: dict[str, Any] = {}
    name_file = tmp_path / "first/name"

    def kill_machine() -> None:
        wait_until(
            lambda: name_file.exists() and bool(name_file.read_text()) and (tmp_path / "other").exists(),
            "both jobs run",
        )
        machines.machine(name_file.read_text().strip()).kill()

        def is_over() -> bool:
            jobs = cell.api("GET", "/projects/1/pipelines/1/jobs?include_retried=true").json()
            lost.update(min((job for job in jobs if job["name"] == "lost"), key=lambda job: int(job["id"])))
            return bool(lost["status"] == "failed")

        wait_until(is_over, "the job is given up", seconds=60)
        (tmp_path / "go").touch()

    runner = machine_entry(machines, machines.machines[0]) + machine_entry(machines, machines.machines[1])
    pipeline = TWO_LONG_JOBS.replace("FOLDER", str(tmp_path))
    jobs = await run_pipeline(cell, tmp_path, "instance", runner, pipeline, kill_machine, agent_lost_seconds=3.0)
    assert lost["failure_reason"] == "runner_system_failure"
    log = cell.api("GET", f"/projects/1/jobs/{lost['id']}/trace").body.decode()
    killed, *_ = name_file.read_text().split()
    [remaining] = [machine.name for machine in machines.machines if machine.name != killed]
    assert f"{machines.machine(killed).address}:22 cannot be reached" in log
    assert f"still on {remaining}\n" in jobs["other"]["log"]
    assert f"again on {remaining}\n" in jobs["lost"]["log"]
    assert {job["status"] for job in jobs.values()} == {"success"}
