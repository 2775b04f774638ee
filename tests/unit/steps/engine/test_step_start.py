import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from remuda.lib.clock import VirtualClock
from remuda.steps.engine.loading import load
from remuda.steps.engine.step_start import StepStart, describe_fetch
from remuda.steps.job_tree.evaluation import Facts
from remuda.steps.job_tree.tree import Tree
from remuda.steps.language.reading import read_step
from remuda.steps.language.references import parse_reference

BEGUN = 1_800_000_000.0  # 08:00:00 UTC


@pytest.mark.parametrize(
    ("written", "deadline", "text"),
    [
        (
            "user:secret@git.example.com/group/steps/-/echo@main",
            None,
            "Waiting for git.example.com, which has not sent the step git.example.com/group/steps/-/echo@main since "
            "08:00:00 UTC; if it does not answer, the step fails by 08:01:00 UTC",
        ),
        (
            "registry.example.com:5000/steps/echo:1",
            BEGUN + 20,
            "Waiting for registry.example.com:5000, which has not sent the step registry.example.com:5000/steps/echo:1 "
            "since 08:00:00 UTC; if it does not answer, the step fails by 08:00:20 UTC",
        ),
        (
            f"git.example.com/x@{'a' * 40}",
            None,
            f"Waiting for git.example.com, which has not sent the step git.example.com/x@{'a' * 40} since "
            "08:00:00 UTC; if it does not answer, the step fails by 08:10:00 UTC",
        ),
    ],
)
def test_a_wait_for_a_package_names_host_and_times(written: str, deadline: float | None, text: str) -> None:
    assert describe_fetch(parse_reference(written, "here"), BEGUN, deadline) == text


class SilentServer:
    """A resolver whose server accepts the connection and sends nothing."""

    async def resolve(self, *_: Any, **__: Any) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError("never")


class Log:
    """The job's log: when each line was written."""

    def __init__(self, clock: VirtualClock) -> None:
        self.lines: list[tuple[float, str]] = []
        self._clock = clock

    def say(self, text: str) -> None:
        self.lines.append((self._clock.now(), text))


async def test_an_unreachable_server_of_a_step_is_in_the_log_within_five_seconds() -> None:
    clock = VirtualClock(BEGUN)
    log = Log(clock)
    facts = Facts(
        base_env={}, agent_env={}, request_env={}, variables={}, work_dir="/work", folder=Path("/job"), key="key"
    )
    state = SimpleNamespace(on_stop=[], facts=facts, context=SimpleNamespace(clock=clock), log=log)
    notified: list[float] = []
    start = StepStart(cast(Any, state), notify=lambda: notified.append(clock.now()))
    tree = Tree(read_step("spec: {remuda: 1}\n---\nrun: [{name: a, step: steps.example/a@1}]"), work_dir="/work")
    [node] = tree.root.children
    announce = partial(start.announce_fetch, node)
    fetch = asyncio.create_task(
        load(tree, facts, node, cast(Any, SilentServer()), substitutes={}, announce=announce), name="fetch"
    )
    await clock.advance(5)
    [(at, line)] = log.lines
    assert line.startswith("Waiting for steps.example, which has not sent the step steps.example/a@1 since 08:00:00")
    assert at - BEGUN <= 5
    assert notified == [at]
    fetch.cancel()
    with suppress(asyncio.CancelledError):
        await fetch
