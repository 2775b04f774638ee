"""Contract tests that every kind of environment must pass: local, fake, SSH machines, autoscaled, and plugins."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.environment_plugins import a_plugin, plugin_environment
from tests.support.machines.lab_group import LabGroup
from tests.support.machines.machines import Machine, Machines
from tests.support.manager_values import a_place

from remuda.fleeting import InProcess
from remuda.lib.clock import SystemClock, settle
from remuda.manager.config.autoscaler import AutoscalerConfig
from remuda.manager.config.values import RunnerConfig
from remuda.manager.environments.autoscaled import AutoscaledEnvironment
from remuda.manager.environments.local import LocalEnvironment
from remuda.manager.environments.machines import MachinesEnvironment
from remuda.manager.environments.plugin import PluginEnvironment
from remuda.manager.environments.port import Environment, JobPlace, PreparedPlace
from remuda.manager.environments.remote_machine import RemoteMachine
from remuda.manager.environments.ssh import Address
from remuda.manager.errors import EnvironmentLostError
from remuda.testing.environment import FakeEnvironment
from remuda.testing.waiting import until
from remuda.wire.agent_client import JobStart

STEPS = '{"spec": {"remuda": 1}}\n---\n{"run": [{"name": "wait", "script": "sleep 60"}]}'


@dataclass
class Subject:
    """An environment, its folder, and a function that kills the agent of a machine."""

    environment: Environment
    folder: Path
    kill: Callable[[str], Awaitable[None]]

    async def prepare(self, place: JobPlace) -> PreparedPlace:
        """Acquire a machine for a job, and prepare its folders there."""
        return await self.environment.prepare(place, await self.environment.acquire(place))

    async def clean_up(self, place: JobPlace) -> None:
        await self.environment.clean_up(place, await self.environment.acquire(place))


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """Two real machines. The test's thread joins their network namespace."""
    if missing := Machines.missing():
        pytest.skip(missing)
    with Machines(2, shared=tmp_path) as lab, lab.enter_network():
        yield lab


@asynccontextmanager
async def ssh_subject(machines: Machines, tmp_path: Path) -> AsyncIterator[Subject]:
    """An environment with a list of machines behind SSH."""

    def remote_machine(machine: Machine) -> RemoteMachine:
        address = Address(host=machine.address, identity_file=str(machines.key), host_key=machine.host_key)
        return RemoteMachine(machine.name, address, folder=str(tmp_path / machine.name))

    environment = MachinesEnvironment(
        [(remote_machine(machine), 1) for machine in machines.machines], clock=SystemClock()
    )

    async def kill(machine: str) -> None:
        async with await environment.connect(machine) as client:
            pid = (await client.hello()).pid
        machines.machine(machine).run(f"kill -9 {pid}")

    yield Subject(environment, tmp_path, kill)
    await environment.close()


@asynccontextmanager
async def autoscaled_subject(machines: Machines, tmp_path: Path) -> AsyncIterator[Subject]:
    """An environment of machines that a scaler creates on demand."""
    group = LabGroup(machines)
    runner = RunnerConfig(
        name="bench",
        url="http://cell.invalid",
        executor="instance",
        autoscaler=AutoscalerConfig(plugin="lab", update_interval_when_expecting="200ms"),
    )
    environment = AutoscaledEnvironment(
        runner,
        folder=tmp_path / "kept",
        system_id="s_1",
        clock=SystemClock(),
        plugins=lambda _: InProcess(group),
        base=str(tmp_path),
    )

    async def kill(machine: str) -> None:
        async with await environment.connect(machine) as client:
            pid = (await client.hello()).pid
        group.instances[machine.removeprefix("lab/")].run(f"kill -9 {pid}")

    async with asyncio.TaskGroup() as tasks:
        scaler = tasks.create_task(environment.run(), name="scaler")
        try:
            await until(lambda: bool(environment.capacity()))
            yield Subject(environment, tmp_path, kill)
        finally:
            scaler.cancel()
            await environment.close()


@asynccontextmanager
async def plugin_subject(tmp_path: Path) -> AsyncIterator[Subject]:
    """An environment of a plugin whose machines are folders."""
    async with plugin_environment(tmp_path, a_plugin(tmp_path / "program")) as environment:

        async def kill(machine: str) -> None:
            async with await environment.connect(machine) as client:
                os.kill((await client.hello()).pid, signal.SIGKILL)

        await environment.usage()  # waits until the plugin runs
        yield Subject(environment, tmp_path, kill)


@pytest.fixture(params=["local", "fake", "fake machines", "machines", "autoscaled", "plugin"])
async def subject(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    if request.param == "plugin":
        async with plugin_subject(tmp_path) as subject:
            yield subject
        return
    if request.param == "autoscaled":
        async with autoscaled_subject(request.getfixturevalue("machines"), tmp_path) as subject:
            yield subject
        return
    if request.param == "machines":
        async with ssh_subject(request.getfixturevalue("machines"), tmp_path) as subject:
            yield subject
        return
    if request.param.startswith("fake"):
        fake = FakeEnvironment(tmp_path, machines=("first", "second") if "machines" in request.param else ())
        yield Subject(fake, tmp_path, lambda machine: fake.machines[machine].die())
        await fake.remove()
        return
    local = LocalEnvironment(tmp_path, clock=SystemClock(), idle_exit_seconds=5)

    async def kill(machine: str) -> None:
        async with await local.connect(machine) as client:
            os.kill((await client.hello()).pid, signal.SIGKILL)

    yield Subject(local, tmp_path, kill)
    with suppress(ProcessLookupError):
        await kill("local")


async def test_a_prepared_place_is_a_folder_that_can_be_written(subject: Subject) -> None:
    prepared = await subject.prepare(a_place())
    work = Path(prepared.work_dir)
    assert work.is_absolute()
    assert work.is_relative_to(prepared.builds_dir)
    (work / "file").write_text("kept")
    second = await subject.prepare(a_place())
    assert second == prepared
    assert (work / "file").read_text() == "kept"


async def test_no_two_slots_or_projects_share_a_folder(subject: Subject) -> None:
    places = [a_place(), a_place(2), a_place(project="group/other"), a_place(project="group/project/deeper")]
    work_dirs = set()
    for place in places:
        work_dirs.add((await subject.prepare(place)).work_dir)
        await subject.clean_up(place)
    assert len(work_dirs) == len(places)


async def test_managers_with_the_same_runner_do_not_share_a_folder(subject: Subject) -> None:
    work_dirs = []
    for manager in ("one", "two", "one"):
        place = replace(a_place(builds_dir=str(subject.folder / "elsewhere")), manager=manager)
        work_dirs.append((await subject.prepare(place)).work_dir)
        await subject.clean_up(place)
    assert work_dirs[0] == work_dirs[2] != work_dirs[1]


async def test_a_job_may_choose_its_clone_path(subject: Subject) -> None:
    place = replace(a_place(), clone_path="go/src/project")
    prepared = await subject.prepare(place)
    assert prepared.work_dir == f"{prepared.builds_dir}/go/src/project"
    assert Path(f"{prepared.work_dir}.tmp").is_dir()
    await subject.clean_up(place)
    assert not Path(f"{prepared.work_dir}.tmp").exists()
    assert Path(prepared.work_dir).is_dir()


async def test_the_configured_folder_is_used(subject: Subject) -> None:
    prepared = await subject.prepare(a_place(builds_dir=str(subject.folder / "elsewhere")))
    assert Path(prepared.work_dir).is_relative_to(subject.folder / "elsewhere")
    assert Path(prepared.cache_dir).is_relative_to(subject.folder)
    place = replace(a_place(), cache_dir=str(subject.folder / "caches"))
    assert (await subject.prepare(place)).cache_dir == str(subject.folder / "caches")


async def test_the_own_folder_of_a_job_is_removed_with_it(subject: Subject) -> None:
    shared = Path((await subject.prepare(a_place())).work_dir)
    place = replace(a_place(), job=7)
    work = Path((await subject.prepare(place)).work_dir)
    assert work != shared
    assert work != Path((await subject.prepare(replace(place, job=8))).work_dir)
    (work / "file").touch()
    for _ in range(2):
        await subject.clean_up(place)
    assert not work.exists()
    assert shared.exists()


async def test_a_folder_that_cannot_be_made_is_a_lost_environment_with_the_cause(subject: Subject) -> None:
    (subject.folder / "occupied").write_text("a file")
    with pytest.raises(EnvironmentLostError, match="occupied"):
        await subject.prepare(a_place(builds_dir=str(subject.folder / "occupied")))


async def test_a_job_keeps_its_machine(subject: Subject) -> None:
    environment = subject.environment
    first = await environment.acquire(a_place())
    assert first
    assert await environment.acquire(a_place()) == first
    second = await environment.acquire(a_place(2))
    if (environment.capacity() or 0) > 1:
        assert second != first


async def test_acquire_waits_for_a_free_machine(subject: Subject) -> None:
    environment, capacity = subject.environment, subject.environment.capacity()
    if capacity is None:
        return  # this environment has no limit
    places = [a_place(slot) for slot in range(capacity)]
    machines = [await environment.acquire(place) for place in places]
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            cancelled = group.create_task(environment.acquire(a_place(capacity)))
            await settle()
            assert not cancelled.done()
            cancelled.cancel()
        waiting = group.create_task(environment.acquire(a_place(capacity)))
        await settle()
        assert not waiting.done()
        await environment.clean_up(places[0], machines[0])
        assert await waiting == machines[0]


async def test_an_adopted_job_keeps_its_machine(subject: Subject) -> None:
    environment = subject.environment
    machine = await environment.acquire(a_place())
    await environment.clean_up(a_place(), machine)
    environment.adopt(a_place(2), machine)
    assert await environment.acquire(a_place(2)) == machine


async def test_all_connections_reach_the_same_agent(subject: Subject) -> None:
    machine = await subject.environment.acquire(a_place())
    async with (
        await subject.environment.connect(machine) as first,
        await subject.environment.connect(machine) as second,
    ):
        assert (await first.hello()).pid == (await second.hello()).pid


async def test_many_connections_at_once_start_one_agent(subject: Subject) -> None:
    machine = await subject.environment.acquire(a_place())
    clients = await asyncio.gather(*(subject.environment.connect(machine) for _ in range(3)))
    assert len({(await client.hello()).pid for client in clients}) == 1
    for client in clients:
        client.close()


async def test_a_job_outlives_connections_and_agent(subject: Subject) -> None:
    machine = await subject.environment.acquire(a_place())
    work_dir = (await subject.prepare(a_place())).work_dir
    async with await subject.environment.connect(machine) as client:
        await client.start(JobStart(id="1-abc", work_dir=work_dir, steps=STEPS))
    assert machine in await subject.environment.recover()
    await subject.kill(machine)
    async with await subject.environment.connect(machine) as client:
        assert (await client.hello()).jobs == {"1-abc"}
        await client.close_job("1-abc")
        assert (await client.hello()).jobs == frozenset()


async def test_hooks_run_and_return_their_output(subject: Subject) -> None:
    place = replace(a_place(), before_job="echo before $REMUDA_JOB", after_job="echo after")
    machine = await subject.environment.acquire(place)
    await subject.prepare(place)
    assert "before" in await subject.environment.run_hook("before_job", place, machine)
    assert "after" in await subject.environment.run_hook("after_job", place, machine)
    assert await subject.environment.run_hook("before_job", a_place(), machine) == ""


async def test_recover_without_jobs_returns_nothing(subject: Subject) -> None:
    assert not await subject.environment.recover()


async def test_clean_up_keeps_the_checkout_and_may_be_repeated(subject: Subject) -> None:
    work = Path((await subject.prepare(a_place())).work_dir)
    (work / "file").write_text("kept")
    temporary = work.with_name(f"{work.name}.tmp")
    (temporary / "secret").write_text("gone")
    for _ in range(2):
        await subject.clean_up(a_place())
    await subject.clean_up(a_place(project="never/prepared"))
    assert (work / "file").exists()
    assert not temporary.exists()


async def test_prepare_empties_the_temporary_folder_before_the_job_but_not_after_its_start(subject: Subject) -> None:
    if isinstance(subject.environment, PluginEnvironment):
        return  # by its protocol only `clean_up` removes these files
    place = a_place()
    prepared = await subject.prepare(place)
    temporary = Path(f"{prepared.work_dir}.tmp")
    (temporary / "left/closed").mkdir(parents=True)
    (temporary / "left/closed").chmod(0)
    (temporary / "left").chmod(0)
    (Path(prepared.work_dir) / "file").write_text("kept")
    await subject.prepare(place)
    assert list(temporary.iterdir()) == []
    assert (Path(prepared.work_dir) / "file").exists()
    (temporary / "own").touch()
    await subject.prepare(replace(place, may_have_begun=True))
    assert [path.name for path in temporary.iterdir()] == ["own"]


async def test_usage_returns_the_free_disk_space(subject: Subject) -> None:
    assert (await subject.environment.usage()).disk_free_bytes > 0


async def test_a_link_in_place_of_a_folder_is_not_followed(subject: Subject) -> None:
    precious = subject.folder / "precious"
    (precious / "project" / "inside").mkdir(parents=True)
    (precious / "project.tmp").mkdir()
    (precious / "project.tmp" / "file").touch()
    expected = ["file", "inside", "project", "project.tmp"]
    place = a_place()
    work = Path((await subject.prepare(place)).work_dir)
    temporary = Path(f"{work}.tmp")
    for replaced in (work, temporary, work.parent, work.parent.parent):
        replaced.rename(subject.folder / f"aside-{replaced.name}")
        replaced.symlink_to(precious)
        await subject.clean_up(place)
        assert sorted(path.name for path in precious.rglob("*")) == expected, replaced
        if replaced == temporary:
            replaced.symlink_to(precious)
        assert (await subject.prepare(place)).work_dir == str(work)
        for folder in (work, temporary):
            assert folder.is_dir()
            assert folder.resolve() == subject.folder.resolve() / folder.relative_to(subject.folder)
        assert sorted(path.name for path in precious.rglob("*")) == expected, replaced
    await subject.clean_up(place)
    assert work.is_dir()
    assert not temporary.exists()


async def test_clean_up_removes_temporary_files_with_any_mode(subject: Subject) -> None:
    place = a_place()
    work = Path((await subject.prepare(place)).work_dir)
    temporary = Path(f"{work}.tmp")
    (temporary / "a/b").mkdir(parents=True)
    (temporary / "a/b/file").touch()
    for folder in ("a/b", "a", ""):
        (temporary / folder).chmod(0)
    await subject.clean_up(place)
    assert not temporary.exists()
    work.chmod(0)
    await subject.prepare(place)
    assert work.stat().st_mode & 0o700 == 0o700
