"""The example configurations of the three kinds of managers: loaded as they are, and run on what this machine has."""

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
from tests.support.machines.machines import Machine, Machines
from tests.support.manager_values import a_payload, a_setting
from tests.support.runners.manager_bench import ManagerBench
from tests.support.servers.docker_engine import BUSYBOX, DockerEngine, busybox_files

from remuda.manager.compile.compile import compile_job
from remuda.manager.config.load import load
from remuda.manager.config.values import RunnerConfig
from remuda.testing.coordinator import RUNNER_TOKEN, Coordinator, ServerJob
from remuda.testing.waiting import until

KINDS = Path(__file__).parents[3] / "examples" / "manager-kinds"
SERVER = {"CI_SERVER_URL": "https://gitlab.example.com", "RUNNER_TOKEN": "glrt-example"}


def the_runner(kind: str) -> RunnerConfig:
    loaded = load(KINDS / kind / "config.toml", SERVER)
    [runner] = loaded.config.runners
    assert loaded.warnings == ()
    return runner


@pytest.mark.parametrize("kind", ["shared", "group-internal", "private"])
def test_an_example_loads_without_a_warning(kind: str) -> None:
    assert the_runner(kind).token == "glrt-example"


def test_what_tells_the_kinds_apart() -> None:
    shared, internal, private = map(the_runner, ("shared", "group-internal", "private"))
    assert {(machine.capacity, machine.use_count) for machine in shared.remuda.machines} == {(1, 1)}
    assert {machine.use_count for machine in internal.remuda.machines} == {0}
    assert (shared.docker.privileged, private.docker.privileged) == (False, True)
    assert {machine.user for machine in (*shared.remuda.machines, *internal.remuda.machines)} == {"ci"}


def test_only_the_named_images_of_a_private_manager_have_all_rights() -> None:
    setting = a_setting(the_runner("private"))
    for image, is_privileged in (("docker:28-cli", True), ("alpine:3", False)):
        compiled = compile_job(a_payload(image={"name": image}), setting)
        assert ('"privileged"' in str(compiled).replace("'", '"')) == is_privileged, image


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    if missing := Machines.missing():
        pytest.skip(missing)
    with Machines(2, shared=tmp_path, docker=(1, 2)) as lab, lab.entered():
        yield lab


@pytest.fixture
async def near(machines: Machines, tmp_path: Path) -> AsyncIterator[ManagerBench]:
    """A manager on the machines' network, whose server is there too."""
    server = Coordinator()
    await server.start()
    bench = ManagerBench(tmp_path, server)
    yield bench
    await bench.close()
    await server.stop()
    assert server.violations == []


def written(bench: ManagerBench, kind: str, lab: Machines, changes: Mapping[str, str]) -> None:
    """The example with the addresses of the test, and with these changes of patterns."""
    text = (KINDS / kind / "config.toml").read_text()
    for pattern, new in changes.items():
        text, count = re.subn(pattern, new, text)
        assert count, pattern
    text = text.replace("$CI_SERVER_URL", bench.coordinator.url).replace("$RUNNER_TOKEN", RUNNER_TOKEN)
    text = text.replace("127.0.0.1:9252", "127.0.0.1:0")
    text = text.replace("/etc/remuda/machines_ed25519", str(lab.key))
    text = re.sub(r'least_disk = ".*"', 'least_disk = "1m"', text)
    for machine, host in zip(lab.machines, re.findall(r'host = "(10\..*)"', text), strict=True):
        text = text.replace(host, machine.address)
    for machine, key in zip(lab.machines, re.findall(r'host_key = "(.*)"', text), strict=True):
        text = text.replace(key, machine.host_key)
    bench.config.write_text(text)


async def jobs(bench: ManagerBench, count: int) -> list[ServerJob]:
    made = [await bench.coordinator.enqueue("hostname; id -un", "echo job $CI_JOB_ID ran") for _ in range(count)]
    for job in made:
        await bench.coordinator.until_over(job, seconds=60)
    return made


def machine_of(job: ServerJob, lab: Machines) -> Machine:
    assert job.status == "success", bytes(job.trace)
    [found] = [one for one in lab.machines if f"\n{one.name}\n".encode() in b"\n" + job.output]
    assert b"\nci\n" in job.output
    return found


@pytest.mark.long
async def test_a_shared_managers_machines_have_one_job_each(
    near: ManagerBench, machines: Machines, tmp_path: Path
) -> None:
    """In containers of the machine's own engine; then no machine is left, and no job is asked for any more."""
    if missing := DockerEngine.missing():
        pytest.skip(missing)
    for machine in machines.machines:
        machine.run("setsid dockerd --group 2000 --shutdown-timeout 1 >/root/dockerd.log 2>&1 </dev/null &")
    (tmp_path / "image.tar").write_bytes(busybox_files())
    for machine in machines.machines:
        machine.run("until docker info >/dev/null 2>&1; do sleep 0.1; done")
        machine.run(f"docker import {tmp_path}/image.tar {BUSYBOX}")
    written(near, "shared", machines, {"pull_policy = .*": 'pull_policy = "never"', "alpine:3": BUSYBOX})
    async with near.manager():
        done = await jobs(near, 2)
        third = await near.coordinator.enqueue("echo never")
        await until(lambda: not any(machine.run("docker ps -aq").stdout for machine in machines.machines))
    assert [job.status for job in done] == ["success"] * 2, [bytes(job.trace) for job in done]
    uses = [machine.run("cat ~ci/.remuda/uses/*").stdout.split("-")[0] for machine in machines.machines]
    assert sorted(uses) == sorted(str(job.id) for job in done)
    assert third.status == "pending"


async def test_a_group_managers_machines_are_used_again(near: ManagerBench, machines: Machines) -> None:
    """Without an engine, and so without containers."""
    written(near, "group-internal", machines, {'executor = ".*"': 'executor = "instance"'})
    async with near.manager():
        done = [*await jobs(near, 4), *await jobs(near, 4)]
    assert {machine_of(job, machines).name for job in done} == {"m1", "m2"}


async def test_a_private_managers_jobs_run_in_containers(bench: ManagerBench) -> None:
    """Without all rights: an engine in a sandbox could not give them."""
    if missing := DockerEngine.missing():
        pytest.skip(missing)
    with DockerEngine() as engine:
        text = (KINDS / "private" / "config.toml").read_text().replace("127.0.0.1:9252", "127.0.0.1:0")
        text = text.replace("$CI_SERVER_URL", bench.coordinator.url).replace("$RUNNER_TOKEN", RUNNER_TOKEN)
        text = text.replace("privileged = true", "privileged = false")
        text = re.sub("pull_policy = .*", f'pull_policy = "never"\n    host = "{engine.host}"', text)
        bench.config.write_text(text.replace('image = "docker:28-cli"', f'image = "{BUSYBOX}"'))
        async with bench.manager():
            job = await bench.coordinator.enqueue(
                "test ! -e /etc/debian_version && test -d /certs/client && echo built"
            )
            await bench.coordinator.until_over(job, seconds=60)
    assert job.status == "success", bytes(job.trace)
    assert b"\nbuilt\n" in job.output
