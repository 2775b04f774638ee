"""Damaged files of the agent: the job whose files they are ends with an error, and the other jobs continue."""

import asyncio
import functools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.step_jobs import Build

from remuda.steps.job_files.journal import folder_name
from remuda.testing.agent_process import AgentProcess, Seen, follow
from remuda.testing.waiting import until

Damage = Callable[[Path], None]

WAIT_SCRIPT = "echo $$ >>started-$NAME; echo here; while [ ! -e go-on ]; do sleep 0.05; done; echo over"


def empty_file(path: Path) -> None:
    os.truncate(path, 0)


def cut_file(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def overwrite_with_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def overwrite_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 8] = b"\xff\x00\xfe\x01\xfd\x02\xfc\x03"[: len(data) - middle]
    path.write_bytes(data)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def is_dead(pid: int) -> bool:
    """True if the process has ended, even if its parent has not waited for it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


UNDETECTED = [("events", "cut"), ("mark", "empty"), ("mark", "spoilt"), ("log", "zeros"), ("log", "spoilt")]
"""Damage that is not found at the start. The first two look like the state after a crash, so the job continues; the
others are found when the log is compared at the end of the job."""
DAMAGES = {
    "empty": empty_file,
    "cut": cut_file,
    "zeros": overwrite_with_zeros,
    "spoilt": overwrite_middle,
    "a folder": replace_by_folder,
}


@pytest.mark.parametrize("name", ["request", "events", "mark", "log"])
async def test_damaged_jobs_end_and_the_others_continue(tmp_path: Path, a_job: Build, name: str) -> None:
    work = tmp_path / "work"
    kinds = [kind for kind in DAMAGES if (name, kind) not in UNDETECTED]
    async with AgentProcess(tmp_path / "data") as agent, asyncio.timeout(120):
        folders = {kind: agent.data / "jobs" / folder_name(kind) for kind in [*kinds, "sound"]}
        await agent.start()
        async with agent.client() as client:
            for number, kind in enumerate(folders):
                await client.start(a_job(kind, script=WAIT_SCRIPT, env={"NAME": str(number)}))
        logs = [folder / "log" for folder in folders.values()]
        await until(lambda: all(log.exists() and b"here" in log.read_bytes() for log in logs))
        pids = [int((work / f"started-{number}").read_text()) for number in range(len(kinds))]
        await agent.kill()
        logs_before = {kind: (folder / "log").read_bytes() for kind, folder in folders.items()}
        for kind in kinds:
            DAMAGES[kind](folders[kind] / name)
        await agent.start()
        try:
            async with agent.client() as client:
                for kind, pid in zip(kinds, pids, strict=True):
                    end = (await follow(client, kind, Seen(log=logs_before[kind]))).end
                    assert end is not None
                    assert end.reason == "runner_system_failure"
                    assert f"the agent's files of this job are damaged: {name}" in end.message
                    # It was killed before the end was told; the kernel may need a moment.
                    await until(functools.partial(is_dead, pid))
                    await client.close_job(kind)
                    assert not folders[kind].exists()
                assert len(list((agent.data / "damaged").iterdir())) == len(kinds)
                (work / "go-on").touch()
                assert (await follow(client, "sound")).check().status == "success"
                assert (work / f"started-{len(kinds)}").read_text().count("\n") == 1
        finally:
            (work / "go-on").touch()


async def test_a_job_whose_id_is_lost_is_ended_and_its_files_are_kept(tmp_path: Path, a_job: Build) -> None:
    """No client can ask for this job: the agent removes it, and a job with the same id can be started."""
    work = tmp_path / "work"
    async with AgentProcess(tmp_path / "data") as agent, asyncio.timeout(60):
        await agent.start()
        async with agent.client() as client:
            await client.start(a_job("1", script=WAIT_SCRIPT, env={"NAME": "1"}))
        await until(lambda: (work / "started-1").exists() and (work / "started-1").read_text().endswith("\n"))
        pid = int((work / "started-1").read_text())
        await agent.kill()
        folder = agent.data / "jobs" / folder_name("1")
        for name in ("request", "events"):
            empty_file(folder / name)
        await agent.start()
        try:
            await until(lambda: not folder.exists())
            await until(functools.partial(is_dead, pid))
            assert len(list((agent.data / "damaged").iterdir())) == 1
            async with agent.client() as client:
                assert not (await client.hello()).jobs
                await client.start(a_job("1", script="echo anew"))
                assert (await follow(client, "1")).check().status == "success"
        finally:
            (work / "go-on").touch()
