"""The example configurations in examples/manager-kinds load without warnings and run jobs."""

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
from tests.support.machines.machines import Machine, Machines
from tests.support.manager_values import a_payload, a_setting
from tests.support.runners.manager_harness import ManagerHarness
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine, busybox_files

from remuda.manager.compile.compile import compile_job
from remuda.manager.config.load import load
from remuda.manager.config.values import RunnerConfig
from remuda.testing.coordinator import RUNNER_TOKEN, Coordinator, ServerJob
from remuda.testing.waiting import until

KINDS = Path(__file__).parents[3] / "examples" / "manager-kinds"
SERVER = {"CI_SERVER_URL": "https://gitlab.example.com", "RUNNER_TOKEN": "glrt-example"}


def load_runner(kind: str) -> RunnerConfig:
    loaded = load(KINDS / kind / "config.toml", SERVER)
    [runner] = loaded.config.runners
    assert loaded.warnings == ()
    return runner


@pytest.mark.parametrize("kind", ["shared", "group-internal", "private"])
def test_an_example_loads_without_a_warning(kind: str) -> None:
    assert load_runner(kind).token == "glrt-example"


def test_differences_between_the_examples() -> None:
    shared, internal, private = map(load_runner, ("shared", "group-internal", "private"))
    assert {(machine.capacity, machine.use_count) for machine in shared.remuda.machines} == {(1, 1)}
    assert {machine.use_count for machine in internal.remuda.machines} == {0}
    assert (shared.docker.privileged, private.docker.privileged) == (False, True)
    assert {machine.user for machine in (*shared.remuda.machines, *internal.remuda.machines)} == {"ci"}


def test_only_allowed_images_of_a_private_manager_are_privileged() -> None:
    setting = a_setting(load_runner("private"))
    for image, is_privileged in (("docker:28-cli", True), ("alpine:3", False)):
        job = compile_job(a_payload(image={"name": image}), setting)
        assert ('"privileged"' in str(job).replace("'", '"')) == is_privileged, image


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    if missing := Machines.missing():
        pytest.skip(missing)
    with Machines(2, shared=tmp_path, docker=(1, 2)) as lab, lab.enter_network():
        yield lab


@pytest.fixture
async def network_harness(machines: Machines, tmp_path: Path) -> AsyncIterator[ManagerHarness]:
    """A manager and its server on the network of the machines."""
    server = Coordinator()
    await server.start()
    harness = ManagerHarness(tmp_path, server)
    yield harness
    await harness.close()
    await server.stop()
    assert server.violations == []


def write_example(harness: ManagerHarness, kind: str, lab: Machines, changes: Mapping[str, str]) -> None:
    """Write an example with the addresses of the test. `changes` maps patterns to replacements."""
    text = (KINDS / kind / "config.toml").read_text()
    for pattern, new in changes.items():
        text, count = re.subn(pattern, new, text)
        assert count, pattern
    text = text.replace("$CI_SERVER_URL", harness.coordinator.url).replace("$RUNNER_TOKEN", RUNNER_TOKEN)
    text = text.replace("127.0.0.1:9252", "127.0.0.1:0")
    text = text.replace("/etc/remuda/machines_ed25519", str(lab.key))
    text = re.sub(r'least_disk = ".*"', 'least_disk = "1m"', text)
    for machine, host in zip(lab.machines, re.findall(r'host = "(10\..*)"', text), strict=True):
        text = text.replace(host, machine.address)
    for machine, key in zip(lab.machines, re.findall(r'host_key = "(.*)"', text), strict=True):
        text = text.replace(key, machine.host_key)
    harness.config.write_text(text)


async def run_jobs(harness: ManagerHarness, count: int) -> list[ServerJob]:
    jobs = [await harness.coordinator.enqueue("hostname; id -un", "echo job $CI_JOB_ID ran") for _ in range(count)]
    for job in jobs:
        await harness.coordinator.until_over(job, seconds=60)
    return jobs


def machine_of(job: ServerJob, lab: Machines) -> Machine:
    assert job.status == "success", bytes(job.trace)
    [machine] = [machine for machine in lab.machines if f"\n{machine.name}\n".encode() in b"\n" + job.output]
    assert b"\nci\n" in job.output
    return machine


@pytest.mark.long
async def test_shared_machine_runs_one_job(network_harness: ManagerHarness, machines: Machines, tmp_path: Path) -> None:
    """Jobs run in containers of the machine's own engine. After them no machine is left for a third job."""
    if missing := DockerEngine.missing():
        pytest.skip(missing)
    for machine in machines.machines:
        machine.run("setsid dockerd --group 2000 --shutdown-timeout 1 >/root/dockerd.log 2>&1 </dev/null &")
    (tmp_path / "image.tar").write_bytes(busybox_files())
    for machine in machines.machines:
        machine.run("until docker info >/dev/null 2>&1; do sleep 0.1; done")
        machine.run(f"docker import {tmp_path}/image.tar {BUSYBOX}")
    write_example(
        network_harness, "shared", machines, {"pull_policy = .*": 'pull_policy = "never"', "alpine:3": BUSYBOX}
    )
    async with network_harness.manager():
        done = await run_jobs(network_harness, 2)
        third = await network_harness.coordinator.enqueue("echo never")
        await until(lambda: not any(machine.run("docker ps -aq").stdout for machine in machines.machines))
    assert [job.status for job in done] == ["success"] * 2, [bytes(job.trace) for job in done]
    uses = [machine.run("cat ~ci/.remuda/uses/*").stdout.split("-")[0] for machine in machines.machines]
    assert sorted(uses) == sorted(str(job.id) for job in done)
    assert third.status == "pending"


async def test_machines_of_a_group_manager_are_reused(network_harness: ManagerHarness, machines: Machines) -> None:
    """Uses the executor `instance`, because these machines have no container engine."""
    write_example(network_harness, "group-internal", machines, {'executor = ".*"': 'executor = "instance"'})
    async with network_harness.manager():
        done = [*await run_jobs(network_harness, 4), *await run_jobs(network_harness, 4)]
    assert {machine_of(job, machines).name for job in done} == {"m1", "m2"}


async def test_jobs_of_a_private_manager_run_in_containers(harness: ManagerHarness) -> None:
    """Not privileged, because an engine in a sandbox cannot start privileged containers."""
    if missing := DockerEngine.missing():
        pytest.skip(missing)
    with DockerEngine() as engine:
        text = (KINDS / "private" / "config.toml").read_text().replace("127.0.0.1:9252", "127.0.0.1:0")
        text = text.replace("$CI_SERVER_URL", harness.coordinator.url).replace("$RUNNER_TOKEN", RUNNER_TOKEN)
        text = text.replace("privileged = true", "privileged = false")
        text = re.sub("pull_policy = .*", f'pull_policy = "never"\n    host = "{engine.host}"', text)
        harness.config.write_text(text.replace('image = "docker:28-cli"', f'image = "{BUSYBOX}"'))
        async with harness.manager():
            job = await harness.coordinator.enqueue(
                "test ! -e /etc/debian_version && test -d /certs/client && echo built"
            )
            await harness.coordinator.until_over(job, seconds=60)
    assert job.status == "success", bytes(job.trace)
    assert b"\nbuilt\n" in job.output
