"""Executes one step: begins it, runs or postpones its command, stores the result. Can be repeated after a crash."""

from collections.abc import Awaitable, Callable

from remuda.lib.killpoints import reach
from remuda.steps.engine import hold
from remuda.steps.engine.command_execution import CommandExecution
from remuda.steps.engine.job_state import JobState
from remuda.steps.engine.launching import launch
from remuda.steps.engine.step_results import StepProduct
from remuda.steps.engine.step_start import StepStart
from remuda.steps.errors import AgentError
from remuda.steps.job_tree.outcome import SKIPPED, Cause
from remuda.steps.job_tree.tree import Node, State
from remuda.steps.process import shim


class StepExecutor:
    def __init__(
        self,
        state: JobState,
        *,
        notify: Callable[[], None],
        end_shells: Callable[[str], Awaitable[None]],
        end_processes: Callable[[], Awaitable[None]],
    ) -> None:
        """`notify` is called after new log lines or results. `end_shells` ends all open shells of the job, shows their
        users its argument, and waits for their end. `end_processes` ends what earlier steps left running."""
        self.state = state
        self._end_shells = end_shells
        self._end_processes = end_processes
        self._start = StepStart(state, notify=notify)
        self.commands = CommandExecution(
            state,
            notify=notify,
            end_shells=end_shells,
            is_new=lambda node: node.serial == self._start.newest,
        )

    def cancel(self) -> None:
        """End running steps of a job whose cancellation is in the journal. Steps with `always()` still run."""
        self.state.tree.stop(self.state.tree.root, Cause.CANCEL)
        for callback in self.state.on_stop:
            callback()

    async def execute(self, node: Node) -> None:
        state = self.state
        is_new = node.state is not State.ENTERED
        if is_new and not await self._start.begin(node):
            return
        if node.follows_job and (is_new or (node.has_command and shim.read_claim(state.files_of(node)) is None)):
            # Processes that the job left running could trace the step if both have the same user. The step counts as
            # begun, so no shell can be opened that would start more of them.
            await self._end_shells(hold.no_shell_beside(node))
            await self._end_processes()
        if not node.has_command:
            state.open_section(node)
        elif not await self._put_off(node):
            await self.commands.execute(node)

    async def _put_off(self, node: Node) -> bool:
        """If the failed job is kept for debugging, postpone a cleanup step, record it as skipped, and return True.
        Returns False if it has to run now, such as the removal of a container that cannot be paused."""
        state = self.state
        if not state.facts.hold_failed_seconds or not hold.is_put_off(state.tree, node):
            return False
        files = state.files_of(node)
        if shim.read_claim(files) is not None:  # it ran before it was known that the job is kept
            return False
        state.open_section(node)
        enclosure = state.enforcement.enclose(node)
        is_jobs = enclosure.person is not None
        enclosure.remove()
        try:
            env_file = state.journal.folder / f"held-{node.serial}.sandbox"
            prepared = launch(state.tree, state.facts, node, files, state.enforcement.wrap_job_command)
            prepared = state.enforcement.wrap_in_sandbox(prepared, node, env_file)
            if is_jobs:
                state.enforcement.give(files, node, has_raw=False)
            if hold.keeps_container(node):
                if not await hold.pause(prepared):
                    state.warn("the container is not kept for debugging: it cannot be paused")
                    return False
                if not hold.is_put_off(state.tree, node):  # the job was cancelled meanwhile
                    return False
            hold.put_off(state.journal.folder, node, prepared, is_jobs=is_jobs)
        except (AgentError, OSError):
            # If the command is executed now, this error fails only the step, not the job.
            return False
        reach("agent.put_off")
        state.finish(node, SKIPPED, StepProduct(suffixes=set()))
        return True
