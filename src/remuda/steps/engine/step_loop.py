"""The main loop of a running job: performs the actions that `sequence` returns, until the job ends."""

import asyncio
from collections.abc import Callable
from functools import partial

from remuda.lib.waiting import LightEvent, unwrap_group_error, wait_for_event
from remuda.steps.engine.job_state import JobState
from remuda.steps.engine.step_execution import StepExecutor
from remuda.steps.job_tree import sequence
from remuda.steps.job_tree.evaluation import condition_holds
from remuda.steps.job_tree.outcome import SKIPPED, Outcome
from remuda.steps.job_tree.sequence import End, Enter, Run, Settle, Skip, Stop, Wait
from remuda.steps.job_tree.tree import Node

Key = tuple[int, ...]


class StepLoop:
    def __init__(self, executor: StepExecutor, *, job_id: str, notify: Callable[[], None]) -> None:
        self._executor = executor
        self._state = executor.state
        self._job_id = job_id
        self._notify = notify
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        """Steps that run at the same time, by their keys in the tree."""
        self._wake = LightEvent()
        self._state.on_stop.append(self._wake.set)

    async def run(self) -> Outcome:
        state, clock = self._state, self._state.context.clock
        holds = partial(condition_holds, state.tree, state.facts)
        async with unwrap_group_error(), asyncio.TaskGroup() as group:
            while True:
                self._notify()
                await state.wait_for_space()
                self._wake.clear()
                now = clock.now()
                until: float | None = None
                has_acted = False
                actions = sequence.next_actions(state.tree, holds, now=now, job_deadline=state.facts.deadline)
                for action in actions:
                    match action:
                        case End(outcome):
                            return outcome
                        case Wait(moment):
                            until = moment if until is None else min(until, moment)
                        case Enter(node) | Run(node) if len(actions) == 1 and not self._tasks:
                            # The usual case, one step after the other, needs no task.
                            await self._executor.execute(node)
                            has_acted = True
                        case Enter(node) | Run(node):
                            self._execute_beside(group, node)
                        case _:
                            # No await: it could outdate the actions that follow.
                            _apply(state, action)
                            has_acted = True
                if not has_acted:
                    await wait_for_event(self._wake, within_seconds=None if until is None else until - now)

    def _execute_beside(self, group: asyncio.TaskGroup, node: Node) -> None:
        key = tuple(node.key)
        if key not in self._tasks:
            task = group.create_task(self._executor.execute(node), name=f"job {self._job_id}: {node.path}")
            self._tasks[key] = task
            task.add_done_callback(partial(self._forget_task, key))

    def _forget_task(self, key: Key, _: asyncio.Task[None]) -> None:
        self._tasks.pop(key, None)
        self._wake.set()


def _apply(state: JobState, action: Skip | Settle | Stop) -> None:
    match action:
        case Skip(node):
            state.finish(node, SKIPPED)
        case Settle(node, result):
            state.settle(node, result)
        case Stop(node, cause):
            state.stop(node, cause)
