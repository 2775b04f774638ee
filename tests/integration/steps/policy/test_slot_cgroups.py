"""The control group of a slot on this machine: whose it is, what it counts, and that a limit is never forgotten."""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

import pytest

from remuda.steps.errors import AgentError
from remuda.steps.policy.slots import SlotGroup, limits_of
from remuda.steps.process.cgroups import find_groups, list_places
from remuda.testing.agent_process import AgentProcess, follow, run_job, steps_text
from remuda.testing.waiting import until
from remuda.wire.agent_client import GroupLimits, JobStart
from remuda.wire.agent_shell import ShellCommand, ShellExit, open_shell

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

BURN = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"


@pytest.fixture
def path() -> Iterator[str]:
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


async def test_a_group_is_there_for_one_job_unless_it_was_there_before(path: str, tmp_path: Path) -> None:
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
    # What an earlier job used in a group that stays is not the next one's.
    processor = [(one.cpu_user_seconds or 0) + (one.cpu_system_seconds or 0) for one in used]
    assert processor[2] < processor[0] + processor[1]


async def test_what_steps_leave_running_counts_against_the_job(path: str, tmp_path: Path) -> None:
    """Each step has groups of its own; the limit is for all of them."""
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


async def test_what_was_put_off_has_the_slot_until_it_is_done(path: str, tmp_path: Path) -> None:
    """As the containers of a job that may be held, which are closed after everything else."""
    place, *_ = list_places(path)
    answer = json.dumps({"name": "environment", "value": {"exec": ["false"]}})
    environment = {
        "open": {"command": ["sh", "-c", f"mkdir {place}/engine && echo '{answer}' >>$REMUDA_OUTPUTS"]},
        "close": {"command": ["rmdir", f"{place}/engine"]},
    }
    package = tmp_path / "w/engine"
    package.mkdir(parents=True)
    head = {"spec": {"remuda": 1}}
    (package / "func.yml").write_text(f"{json.dumps(head)}\n---\n{json.dumps({'environment': environment})}")
    inside = {"name": "inside", "script": "true"}
    steps = steps_text({"name": "there", "step": "./engine", "run": [inside], "continue_on_error": True})
    job = JobStart(id="1", work_dir=str(tmp_path / "w"), steps=steps, cgroup=path, hold_failed_seconds=600)
    async with AgentProcess(tmp_path / "data") as agent:
        await agent.start()
        seen = await run_job(agent, job)
        assert seen.check().status == "success", seen.log
        assert not any(place.exists() for place in list_places(path)), seen.log


async def test_a_shell_is_in_the_slot_as_steps_are(path: str, tmp_path: Path) -> None:
    """Its policy may allow more than the slot has: version 1 has no such group."""
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
            wish = ShellCommand(command=("touch", "go"), terminal=False)
            async with open_shell(client, "1", wish) as shell:
                told = [one async for one in shell]
            assert told[-1] == ShellExit(0)
            assert (await follow(client, "1")).check().status == "success"


def test_limits_that_cannot_be_kept_are_an_error(tmp_path: Path) -> None:
    # A name that no group can have: nothing here may be made, as on a machine whose groups are somebody else's.
    slot = SlotGroup("/no\ngroup", limits=limits_of(1 << 30, 0, 100), name="remuda-1", job=tmp_path)
    with pytest.raises(AgentError, match=r"(?s)limits jobs by slot_memory, slot_pids, which .* or remove the limit"):
        slot.begin()
    SlotGroup("/no\ngroup", limits=limits_of(0, 0, 0), name="remuda-1", job=tmp_path).begin()
