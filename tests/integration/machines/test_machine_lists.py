"""An environment with a list of machines: distribution of jobs, dead machines, use counts, full disks, hooks."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.support.machines.machines import Machine, Machines
from tests.support.manager_values import a_place

from remuda.manager.environments.machines import MachinesEnvironment
from remuda.manager.errors import EnvironmentLostError, EnvironmentTemporaryError
from remuda.testing.agent_process import follow, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import AgentClient, AgentUnavailableError, JobStart

MakeEnvironment = Callable[..., MachinesEnvironment]


async def test_jobs_are_spread_and_wait_when_all_machines_are_full(lab: Machines, environment: MakeEnvironment) -> None:
    subject = environment()
    assert subject.capacity() == 6
    machines = [await subject.acquire(a_place(number)) for number in range(6)]
    assert machines == ["m1", "m2", "m3"] * 2
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        waiting = group.create_task(subject.acquire(a_place(7)))
        await subject.clean_up(a_place(1), "m2")
    assert waiting.result() == "m2"


async def test_a_dead_machine_gets_no_job_until_it_is_back(
    lab: Machines, environment: MakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.manager.environments.ssh.CONNECT_SECONDS", 1.0)
    lab.machines[0].kill()
    subject = environment()
    assert [await subject.acquire(a_place(number)) for number in range(2)] == ["m2", "m3"]
    assert subject.capacity() == 4
    with pytest.raises(EnvironmentTemporaryError, match="cannot be reached"):
        await subject.connect("m1")
    assert (await subject.usage()).disk_free_bytes > 0
    lab.machines[0].start()
    await until(lambda: subject.capacity() == 6, seconds=60)
    assert await subject.acquire(a_place(3)) == "m1"


async def test_the_use_count_is_stored_on_the_machine(lab: Machines, environment: MakeEnvironment) -> None:
    for number in range(2):  # each time with a new environment
        subject = environment(lab.machines[0], lab.machines[1], capacity=1, use_count=1)
        place = a_place(number)
        assert await subject.acquire(place) == f"m{number + 1}"
        assert await subject.acquire(place) == f"m{number + 1}"
        await subject.clean_up(place, f"m{number + 1}")
    subject = environment(lab.machines[0], lab.machines[1], capacity=1, use_count=1)
    subject.adopt(a_place(1), "m2")
    assert await subject.acquire(a_place(1)) == "m2"
    await subject.clean_up(a_place(1), "m2")
    with pytest.raises(EnvironmentLostError, match="no machine may be used any more: m1 has had its 1 jobs"):
        await subject.acquire(a_place(2))
    assert subject.capacity() == 0


async def test_a_machine_at_its_use_count_does_not_add_capacity(lab: Machines, environment: MakeEnvironment) -> None:
    m1, m2, _ = lab.machines
    subject = environment(m1, m2, use_count=3)
    await subject.usage()
    assert subject.capacity() == 4
    for number in range(4):
        await subject.acquire(a_place(number))
    for number in range(4):
        await subject.clean_up(a_place(number), f"m{number % 2 + 1}")
    assert subject.capacity() == 2
    await subject.acquire(a_place(4))
    assert subject.capacity() == 2
    await subject.clean_up(a_place(4), "m1")
    assert subject.capacity() == 1
    restarted = environment(m1, m2, use_count=3)
    await restarted.usage()
    assert restarted.capacity() == 1


async def test_a_job_is_retried_while_an_unreachable_machine_may_come_back(
    lab: Machines, environment: MakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.manager.environments.ssh.CONNECT_SECONDS", 1.0)
    m1, m2, _ = lab.machines
    m2.kill()
    subject = environment(m1, m2, capacity=1, use_count=1)
    assert await subject.acquire(a_place(1)) == "m1"
    with pytest.raises(EnvironmentTemporaryError, match=r"no machine can be reached: m1 has had .*; root@10"):
        await subject.acquire(a_place(2))
    m2.start()
    await until(lambda: subject.capacity() == 2, seconds=60)
    assert await subject.acquire(a_place(2)) == "m2"
    with pytest.raises(EnvironmentLostError, match="no machine may be used any more"):
        await subject.acquire(a_place(3))


async def test_a_waiting_job_fails_when_no_machine_can_be_used(lab: Machines, environment: MakeEnvironment) -> None:
    subject = environment(lab.machines[0], capacity=1, use_count=2)
    await subject.acquire(a_place(1))
    failures: list[str] = []

    async def wait(number: int) -> None:
        try:
            await subject.acquire(a_place(number))
        except EnvironmentLostError as error:
            failures.append(str(error))

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for number in (2, 3):
            group.create_task(wait(number))
        await subject.clean_up(a_place(1), "m1")
    assert len(failures) == 1


async def test_only_one_of_several_managers_gets_the_last_use(lab: Machines, environment: MakeEnvironment) -> None:
    environments = [environment(lab.machines[0], use_count=1) for _ in range(6)]
    async with asyncio.TaskGroup() as group:
        for subject in environments:
            group.create_task(subject.usage())
    results = await asyncio.gather(
        *(subject.acquire(a_place(number)) for number, subject in enumerate(environments)), return_exceptions=True
    )
    assert sorted(type(result).__name__ for result in results) == ["EnvironmentLostError"] * 5 + ["str"]


async def test_a_machine_with_a_full_disk_gets_no_job(lab: Machines, environment: MakeEnvironment) -> None:
    """No machine has the required space, so none gets a job; `usage` returns the largest free space."""
    subject = environment(lab.machines[0], least_disk_bytes=1 << 60)
    assert 0 < (await subject.usage()).disk_free_bytes < 1 << 60
    assert subject.capacity() == 0


async def test_a_machine_that_is_not_configured_any_more_is_lost(lab: Machines, environment: MakeEnvironment) -> None:
    subject = environment()
    subject.adopt(a_place(1), "gone")
    assert await subject.acquire(a_place(1)) == "gone"
    with pytest.raises(EnvironmentLostError, match="the machine gone is not in the runner's configuration any more"):
        await subject.connect("gone")


async def unplug_during_watch(client: AgentClient, machine: Machine) -> None:
    async with client.watch() as watch:
        await watch.subscribe("1-abc")
        async for _ in watch:
            machine.unplug()


@pytest.mark.long
async def test_a_cut_network_is_noticed_and_the_log_continues_after_it(
    lab: Machines, environment: MakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.manager.environments.ssh.KEEP_ALIVE_SECONDS", 0.3)
    machine = lab.machines[0]
    subject = environment(machine)
    name = await subject.acquire(a_place(1))
    work = (await subject.prepare(a_place(1), name)).work_dir
    script = "n=0; while [ $n -lt 200 ]; do echo line $n; n=$((n+1)); sleep 0.02; done"
    async with await subject.connect(name) as client:
        await client.start(JobStart(id="1-abc", work_dir=work, steps=steps_text({"name": "say", "script": script})))
        with pytest.raises(AgentUnavailableError):
            await unplug_during_watch(client, machine)
    machine.plug()
    async with await subject.connect(name) as client:
        result = await follow(client, "1-abc")
        assert result.check().status == "success", result
        assert result.lines == [f"line {n}".encode() for n in range(200)]
        await client.close_job("1-abc")


async def test_the_folders_of_a_job_belong_to_its_user(lab: Machines, environment: MakeEnvironment) -> None:
    machine = lab.machines[0]
    subject = environment(machine)
    place = replace(a_place(1), run_as="4001")
    prepared = await subject.prepare(place, machine.name)
    for folder in (prepared.work_dir, f"{prepared.work_dir}.tmp", prepared.cache_dir):
        assert (machine.root / folder.lstrip("/")).stat().st_uid == 4001
    (machine.root / prepared.work_dir.lstrip("/") / "file").touch()
    other = replace(place, run_as="4002:4003")
    assert (await subject.prepare(other, machine.name)).cache_dir != prepared.cache_dir
    work_dir = machine.root / prepared.work_dir.lstrip("/")
    assert (work_dir.stat().st_uid, (work_dir / "file").stat().st_gid) == (4002, 4003)
    with pytest.raises(EnvironmentLostError, match="no such user"):
        await subject.prepare(replace(place, run_as="nosuchuser"), machine.name)
    with pytest.raises(EnvironmentLostError, match="steps must not run as root; name another user"):
        await subject.prepare(replace(place, run_as="0"), machine.name)
    with pytest.raises(EnvironmentLostError, match="/root is closed to others"):
        await subject.prepare(replace(place, builds_dir="/root/builds"), machine.name)


async def test_a_removed_agent_program_is_installed_again(lab: Machines, environment: MakeEnvironment) -> None:
    machine = lab.machines[0]
    subject = environment(machine)
    await subject.acquire(a_place(1))
    machine.run("rm /var/lib/remuda-machine/bin/agent-????????????????")
    with pytest.raises(EnvironmentTemporaryError, match="the agent does not answer: exit code 127"):
        await subject.connect(machine.name)
    async with await subject.connect(machine.name) as client:
        assert (await client.hello()).protocol == 1


async def test_a_failed_hook_is_reported_with_machine_and_output(lab: Machines, environment: MakeEnvironment) -> None:
    subject = environment(lab.machines[0])
    place = replace(a_place(5), before_job="echo $REMUDA_JOB in $REMUDA_WORK_DIR; exit 3", after_job="id -un >&2")
    with pytest.raises(EnvironmentLostError, match="before_job ended with 3 on m1: 5 in /var/lib/remuda-machine"):
        await subject.run_hook("before_job", place, "m1")
    assert await subject.run_hook("after_job", place, "m1") == "root\n"
