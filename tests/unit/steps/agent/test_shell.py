"""A shell command that cannot be started leaves no files and no open descriptors. Commands that run are tested in
tests/integration/steps/agent/test_shell.py."""

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from grpclib.server import Stream

from remuda.lib.clock import VirtualClock
from remuda.steps.agent import shell
from remuda.steps.agent.jobs import Jobs
from remuda.steps.engine.hold import Entrance, Way
from remuda.steps.engine.process_execution import AgentContext
from remuda.steps.policy.enforcement import PolicyEnforcement
from remuda.steps.policy.host_abilities import Host
from remuda.steps.policy.values import Layer, Policy
from remuda.steps.process.cgroups import Groups
from remuda.steps.process.kernel import Changes, Pulse
from remuda.steps.process.step_files import EXCHANGE
from remuda.wire.proto import agent_pb2 as pb

TOO_LONG = "x" * 200_000
"""An argument that is too long for the kernel."""


class Call:
    """The server's side of a `Shell` call whose client sends nothing."""

    def __init__(self) -> None:
        self.sent: list[pb.ShellOutput] = []

    async def send_message(self, message: pb.ShellOutput) -> None:
        self.sent.append(message)

    async def recv_message(self) -> None:
        return None


@pytest.fixture
async def create_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Jobs]]:
    """Return a function that creates an agent with one job. Its shells run in control groups, and `prefix` starts their
    commands."""
    folder = tmp_path / "data/jobs/j"
    (folder / EXCHANGE).mkdir(parents=True)
    (tmp_path / "groups").mkdir()
    monkeypatch.setattr(shell, "host_of", lambda *_: Host(is_root=False, groups=Groups(v2=tmp_path / "groups")))
    policy = Policy(layers=(Layer(author="runner r"),))
    enforcement = PolicyEnforcement(policy=policy, person=None, job=folder, work_dir=tmp_path, key="k")
    pulse = Pulse()
    changes = Changes(pulse)

    async def load_enforcement() -> PolicyEnforcement:
        return enforcement

    def create(*prefix: str) -> Jobs:
        entrance = Entrance(way=Way(prefix=prefix), env={"SECRET": "s3cret"}, outer_env={}, work_dir=str(tmp_path))
        job = SimpleNamespace(
            footprint=SimpleNamespace(load_enforcement=load_enforcement),
            entrance=lambda _: entrance,
            journal=SimpleNamespace(folder=folder, key="k"),
            shells=set(),
        )
        context = AgentContext(clock=VirtualClock(), pulse=pulse, changes=changes, base_env={}, open_files=1024)
        return cast(Jobs, SimpleNamespace(get=lambda _: job, context=context))

    yield create
    changes.close()


async def read_refusal(jobs: Jobs, request: pb.ShellOpen) -> str:
    call = Call()
    await shell.attend(jobs, pb.ShellInput(open=request), cast("Stream[Any, Any]", call))
    (response,) = call.sent
    return response.refused


def list_leftovers(folder: Path) -> list[Path]:
    """List all paths but those that the fixture created."""
    return [path for path in folder.rglob("*") if path.name not in ("data", "jobs", "j", "groups", EXCHANGE)]


@pytest.mark.parametrize("terminal", [True, False])
async def test_unstartable_command_is_gone(create_jobs: Callable[..., Jobs], tmp_path: Path, *, terminal: bool) -> None:
    descriptors = os.listdir("/proc/self/fd")
    request = pb.ShellOpen(terminal=terminal, command=["true"])
    message = await read_refusal(create_jobs("enter", TOO_LONG), request)
    assert message == "the shell cannot be started: Argument list too long"
    assert os.listdir("/proc/self/fd") == descriptors
    assert list_leftovers(tmp_path) == []


async def test_a_command_with_unwritable_files_leaves_nothing(create_jobs: Callable[..., Jobs], tmp_path: Path) -> None:
    (tmp_path / "data/jobs/j" / EXCHANGE).rmdir()
    message = await read_refusal(create_jobs("enter"), pb.ShellOpen(command=["true"]))
    assert message == "the shell cannot be started: No such file or directory"
    assert list_leftovers(tmp_path) == []
