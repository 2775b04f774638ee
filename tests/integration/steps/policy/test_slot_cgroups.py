"""The cgroup of a slot on this machine: its creation and removal, usage per job, and limits."""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

import pytest
from tests.support.step_files import open_command, write_step

from remuda.steps.errors import AgentError
from remuda.steps.policy.slot_cgroup import SlotGroup, limits_of
from remuda.steps.process.cgroups import find_groups, list_places
from remuda.testing.agent_process import AgentProcess, follow, run_job, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import GroupLimits, JobStart
from remuda.wire.agent_shell import ShellCommand, ShellExit, open_shell

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

BURN = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"


@pytest.fixture
def path() -> Iterator[str]:
    """The path of a cgroup for a slot, which does not exist yet."""
    name = f"/remuda-tests/{token_hex(4)}/slot-0"
    if not find_groups("x", parent=name).limits("pids"):
        pytest.skip("this machine has no control groups that can be used")
    for place in list_places(name):
        place.rmdir()
    yield name
    for place in list_places(name):
        for folder in (place, place.parent):
            with suppress(OSError):
                folder.rmdir()


async def test_a_new_cgroup_is_removed_after_the_job_and_an_existing_one_stays(path: str, tmp_path: Path) -> None:
    steps = steps_text({"name": "look", "script": BURN})
    limits = GroupLimits(memory_bytes=256 << 20, pids=50)
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start()
        used = []
        for number in range(3):
            if number == 1:
                for place in list_places(path):
                    place.mkdir()
            job = JobStart(id=str(number), work_dir=str(tmp_path / "w"), steps=steps, cgroup=path, cgroup_limits=limits)
            used.append((await run_job(agent, job)).check().used)
            assert {place.is_dir() for place in list_places(path)} == {number > 0}
    # Usage of an earlier job in a cgroup that stays does not count for the next job.
    cpu_seconds = [(usage.cpu_user_seconds or 0) + (usage.cpu_system_seconds or 0) for usage in used]
    assert cpu_seconds[2] < cpu_seconds[0] + cpu_seconds[1]


async def test_processes_that_steps_left_count_against_the_job(path: str, tmp_path: Path) -> None:
    """Each step has its own cgroups; the limit applies to all of them together."""
    leave = "for i in 1 2 3 4 5 6 7 8; do sleep 30 >/dev/null 2>&1 & done"
    last = "sh -c 'for i in 1 2 3 4 5 6; do sleep 30 >/dev/null & done; wait'"
    steps = steps_text({"name": "one", "script": leave}, {"name": "two", "script": last})
    job = JobStart(id="1", work_dir=str(tmp_path / "w"), steps=steps, cgroup=path, cgroup_limits=GroupLimits(pids=14))
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start()
        seen = await run_job(agent, job)
    assert seen.check().status != "success"
    assert b"the job could not start more than 14 processes, which is its limit" in seen.log, seen.log
    assert not any(place.exists() for place in list_places(path))


async def test_the_slot_exists_until_environments_are_closed(path: str, tmp_path: Path) -> None:
    """Containers of a job that may be held are closed after everything else."""
    place, *_ = list_places(path)
    *shell, write_output = open_command({"exec": ["false"]})
    environment = {
        "open": {"command": [*shell, f"mkdir {place}/engine && {write_output}"]},
        "close": {"command": ["rmdir", f"{place}/engine"]},
    }
    write_step(tmp_path / "w/engine", {"environment": environment})
    inside = {"name": "inside", "script": "true"}
    steps = steps_text({"name": "there", "step": "./engine", "run": [inside], "continue_on_error": True})
    job = JobStart(id="1", work_dir=str(tmp_path / "w"), steps=steps, cgroup=path, hold_failed_seconds=600)
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start()
        seen = await run_job(agent, job)
        assert seen.check().status == "success", seen.log
        assert not any(place.exists() for place in list_places(path)), seen.log


async def test_a_shell_is_in_the_slot_as_steps_are(path: str, tmp_path: Path) -> None:
    """The policy may allow more than the slot has, which a cgroup of version 1 refuses."""
    layers = [{"author": "runner r", "document": {"limits": {"cpu": 2}}}]
    job = JobStart(
        id="1",
        work_dir=str(tmp_path / "w"),
        steps=steps_text({"name": "waits", "script": "touch begun; until [ -e go ]; do sleep 0.05; done"}),
        policy=json.dumps({"version": 1, "layers": layers}),
        cgroup=path,
        cgroup_limits=GroupLimits(cpus=0.5),
    )
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start()
        async with agent.client() as client:
            await client.start(job)
            await until((tmp_path / "w/begun").exists)
            command = ShellCommand(command=("touch", "go"), terminal=False)
            async with open_shell(client, "1", command) as shell:
                events = [event async for event in shell]
            assert events[-1] == ShellExit(0)
            assert (await follow(client, "1")).check().status == "success"


def test_limits_that_cannot_be_enforced_are_an_error(tmp_path: Path) -> None:
    # No cgroup can have this name, so it cannot be created, as on a machine where the agent may not use cgroups.
    slot = SlotGroup("/no\ngroup", limits=limits_of(1 << 30, 0, 100), name="remuda-1", job=tmp_path)
    with pytest.raises(AgentError, match=r"(?s)limits jobs by slot_memory, slot_pids, which .* or remove the limit"):
        slot.begin()
    SlotGroup("/no\ngroup", limits=limits_of(0, 0, 0), name="remuda-1", job=tmp_path).begin()
